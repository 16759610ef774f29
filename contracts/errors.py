"""Every error that headrace raises, drawn as one tree.

    HeadraceError
    |- YourFault                     something the user wrote; exit code 2
    |  |- PipelineInvalid            a pipeline (file or object) that cannot work
    |  |- ScenarioInvalid            a table of records, or a file of such, that cannot be run
    |  |- SparkNeeded                an expression, in a test, that only Spark can evaluate
    |  |- JobInvalid                 a Spark job's file that cannot work
    |  |- JobFailed                  a function of the user's own job that raised
    |  |- DurationInvalid            text that is not a duration
    |  |- SizeInvalid                text that is not a size
    |  |- SelectorInvalid            text that selects nothing, or a function that cannot be found
    |  |- TopologyRefused            a join, table or suppress that its proposal refuses
    |  |- SchemaRefused              a model with a field that no column can hold
    |  |- SettingsInvalid            a flag or a variable of the environment
    |  |- TopicRefused               a topic that is missing, or that would lose or mix up records
    |  |- GroupBusy                  instances run that must be stopped first
    |  |- MemberForeign              another program is in the group of a pipeline
    |  |- InstanceReplaced           another process has started under this one's name
    |  |- RegistryRefused            a schema registry that answers, and will not let us in
    |  |- KafkaRefused               a broker that answers, and will not let us in
    |  |  `- TokenRefused            a token server that answers, and gives no token
    |  |- ExtraMissing               a library that comes with an extra of headrace
    |  |- ProgramMissing             Java or Maven, which broker and Spark need
    |  |- LimitTooLow                the operating system gives this process too little
    |  `- PortTaken                  another program listens where ours should
    |- RecordUndecodable             one record's bytes; it goes to the dead-letter topic
    |  |- RecordTooLarge             one record that is too large for a topic; dead too
    |  `- RecordFailed               a step that fails on one record; dead too, or exit code 8
    |- SchemaAwaited                 a registered schema that was not looked up yet
    |- BufferFull                    a buffer told to shut down when full is full; exit code 5
    |- StateRefused                  state that this program must not touch; exit code 4
    |  |- StateLayoutNewer           written by a newer headrace
    |  |- StateLocked                held by another process
    |  |- StateOfAnotherPipeline     written by another pipeline
    |  |- SinkOfAnotherQuery         a sink that another checkpoint has written to
    |  |- ReplayDiffers              a micro-batch, written in part, that gives other rows now
    |  |- StateOfOtherOptions        written with options that these cannot go on from
    |  |- StateTruncated             a changelog that lost records which the state needs
    |  `- StateUnavailable           the disk is full, gone, or not ours to write
    |- OutputLost                    what a command prints cannot be written; exit code 4
    |- StateCorrupt                  damaged bytes; rebuilt from the changelog
    |- InstanceFenced                another program took over; exit code 6
    |- DemoFailed                    the demo's sidecar did not do what it was started for
    |- WorkerStalled                 something stands still for too long; exit code 7
    `- KafkaUnreachable              no broker answers; exit code 3
       |- TokenUnavailable           no token server answers
       |- RegistryUnavailable        no schema registry answers
       `- BrokerFailed               the embedded broker did not start, or ended by itself

A leaf's docstring ends with what to do. Any other exception that leaves headrace is a bug.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """The root of everything headrace raises on purpose."""

    exit_code = 1


class YourFault(HeadraceError):
    """Something the user wrote cannot work. **Do:** what the sentence says."""

    exit_code = 2


class PipelineInvalid(YourFault):
    """A pipeline cannot work as written. **Do:** change the place that the sentence names."""


class ScenarioInvalid(YourFault):
    """A scenario cannot be run as written. **Do:** change the line that the sentence names."""


class SparkNeeded(YourFault):
    """Only Spark can evaluate this expression. **Do:** write it otherwise, or test it in Spark."""


class JobInvalid(YourFault):
    """A job's file cannot work as written. **Do:** change the place that the sentence names."""


class JobFailed(YourFault):
    """A function of the user's own job raised. **Do:** mend it, and start the job again."""


class DurationInvalid(YourFault, ValueError):
    """Text is not a duration. **Do:** write a number and a unit, such as `30s` or `10m`."""


class SizeInvalid(YourFault, ValueError):
    """Text is not a size. **Do:** write a number and a unit, such as `64MiB`."""


class SelectorInvalid(YourFault, ValueError):
    """A selector selects nothing.

    **Do:** write `key`, `header.NAME`, `value.FIELD` or `module:function`.
    """


class TopologyRefused(YourFault):
    """A proposal refuses this combination of steps. **Do:** what the sentence says."""


class SchemaRefused(YourFault):
    """A model cannot be a schema. **Do:** change the field that the sentence names."""


class SettingsInvalid(YourFault):
    """A setting cannot work. **Do:** change the variable or flag that the sentence names."""


class TopicRefused(YourFault):
    """A topic is not as the pipeline needs it. **Do:** what the sentence says."""


class GroupBusy(YourFault):
    """Instances of the pipeline are running. **Do:** stop them, and try again."""


class MemberForeign(YourFault):
    """A member of the group is no instance of the pipeline.

    **Do:** stop it, or give it a group of its own.
    """


class InstanceReplaced(YourFault):
    """Another process has this one's instance id. **Do:** give each an id of its own."""


class KafkaRefused(YourFault):
    """A broker does not accept us. **Do:** check user, password, certificates and permissions."""


class RegistryRefused(YourFault):
    """A schema registry does not answer us. **Do:** check its address, user and password."""


class ExtraMissing(YourFault, ImportError):
    """A library is not installed. **Do:** install the extra that the sentence names."""


class ProgramMissing(YourFault):
    """A program that headrace starts is not installed. **Do:** install what the sentence names."""


class LimitTooLow(YourFault):
    """The operating system gives this process too little. **Do:** raise the limit it names."""


class PortTaken(YourFault):
    """Another program listens on this port. **Do:** stop it, or name another port."""


class TokenRefused(KafkaRefused, OSError):
    """A token server gives us no token. **Do:** check its address, the client and its secret.

    Kafka's clients take it as an OSError: a connection that failed, to be tried again.
    """


class RecordUndecodable(HeadraceError):
    """A record's bytes are not what was expected. **Do:** read it in the dead-letter topic."""


class RecordTooLarge(RecordUndecodable):
    """A record, or the state that it leaves, is larger than a topic accepts.

    **Do:** raise the topic's `max.message.bytes`.
    """


class RecordFailed(RecordUndecodable):
    """A step, or a user's function in it, failed on a record.

    **Do:** read it in the dead-letter topic; with `on-failure: stop`, mend what failed.
    """

    exit_code = 8


class SchemaAwaited(HeadraceError):
    """A value has a schema that was not looked up yet.

    **Do:** nothing in a sidecar, which looks it up and tries again; in a test, give the schema.
    """

    def __init__(self, number: int) -> None:
        """Name the schema that is missing."""
        super().__init__(f"schema {number} was not looked up")
        self.number = number


class BufferFull(HeadraceError):
    """A buffer that must shut down is full. **Do:** raise its bounds, or choose another answer."""

    exit_code = 5


class StateRefused(HeadraceError):
    """State on disk that must not be touched. **Do:** what the sentence says."""

    exit_code = 4


class StateLayoutNewer(StateRefused):
    """A newer headrace wrote this state.

    **Do:** upgrade, or delete the folder to rebuild it from the changelog.
    """


class StateLocked(StateRefused):
    """Another process holds this state. **Do:** stop it, or give this one another folder."""


class StateOfAnotherPipeline(StateRefused):
    """Another pipeline wrote this state. **Do:** give each pipeline a folder of its own."""


class SinkOfAnotherQuery(StateRefused):
    """A sink was written with another checkpoint. **Do:** what the sentence says."""


class ReplayDiffers(StateRefused):
    """A micro-batch that was written in part gives other rows now. **Do:** what it says."""


class StateOfOtherOptions(StateRefused):
    """The pipeline was changed in a way that its state cannot follow. **Do:** what it says."""


class StateTruncated(StateRefused):
    """A changelog lost records. **Do:** bring the topic back, or begin anew with `reset`."""


class StateUnavailable(StateRefused):
    """The disk under the state does not answer. **Do:** free space, or fix permissions."""


class OutputLost(HeadraceError):
    """The output of a command cannot be written. **Do:** make room, or write it elsewhere."""

    exit_code = 4


class StateCorrupt(HeadraceError):
    """State on disk is damaged. **Do:** delete the folder; it is rebuilt from the changelog."""

    exit_code = 4


class InstanceFenced(HeadraceError):
    """Another instance owns a partition that this one held. **Do:** start it again."""

    exit_code = 6


class DemoFailed(HeadraceError):
    """The demo's sidecar ended, or did not. **Do:** read what it said, and try again."""


class WorkerStalled(HeadraceError):
    """Work was waiting, and nothing moved. **Do:** start the instance again."""

    exit_code = 7


class KafkaUnreachable(HeadraceError):
    """No broker answers. **Do:** check the address and that the broker runs."""

    exit_code = 3


class RegistryUnavailable(KafkaUnreachable):
    """No schema registry answers. **Do:** check its address, and that it runs; start again."""


class TokenUnavailable(KafkaUnreachable, OSError):
    """No token server answers, or it is broken. **Do:** check its address, and that it runs.

    Kafka's clients take it as an OSError: a connection that failed, to be tried again.
    """


class BrokerFailed(KafkaUnreachable):
    """The embedded broker did not start, or ended by itself. **Do:** read its log's last lines."""
