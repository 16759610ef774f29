// Writes the records of its input: writer SERVERS TOPIC CODEC MANNER [TRANSACTIONAL-ID].
//
// A line is a record: partition, timestamp, key, value, and then name and value of each header,
// with tabs between. Names are as they are, keys and values are base64, and "-" where they are null.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	servers, topic, codec, manner := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if manner == "plain" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if manner == "transactional" {
		options = append(options, kgo.TransactionalID(os.Args[5]))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	records := read(topic)
	if manner != "transactional" {
		write(client, records)
		return
	}
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		check(client.BeginTransaction())
		write(client, records)
		check(client.EndTransaction(context.Background(), end))
		// What was sent once is not sent again.
		records = read(topic)
	}
}

func write(client *kgo.Client, records []*kgo.Record) {
	check(client.ProduceSync(context.Background(), records...).FirstErr())
}

func read(topic string) []*kgo.Record {
	_, err := os.Stdin.Seek(0, 0)
	check(err)
	var records []*kgo.Record
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		record := &kgo.Record{
			Topic:     topic,
			Partition: int32(number(fields[0])),
			Timestamp: time.UnixMilli(number(fields[1])),
			Key:       bytes(fields[2]),
			Value:     bytes(fields[3]),
		}
		for at := 4; at < len(fields); at += 2 {
			header := kgo.RecordHeader{Key: fields[at], Value: bytes(fields[at+1])}
			record.Headers = append(record.Headers, header)
		}
		records = append(records, record)
	}
	check(lines.Err())
	return records
}

func number(text string) int64 {
	parsed, err := strconv.ParseInt(text, 10, 64)
	check(err)
	return parsed
}

func bytes(text string) []byte {
	if text == "-" {
		return nil
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	check(err)
	return decoded
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
