"""What headrace promises, to whom: the words, bytes and files that its halves share."""
