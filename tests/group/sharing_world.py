"""Instances with producers over one broker, and whatever can go wrong between two steps."""

from __future__ import annotations

from contextlib import suppress

from headrace.services.group.shared_transaction import Stage
from tests.group.naive_broker import SHARED, Broker, FencedError, Place
from tests.group.sharing import Instance

STEPS_MAX = 5_000


class World:
    """Instances over one broker."""

    def __init__(self, partitions: int, records: int, producers: int) -> None:
        """It has no instance yet."""
        self.broker = Broker(partitions, records)
        self.instances: dict[str, Instance] = {}
        self.dead: dict[str, tuple[int, str]] = {}
        """How many lives those had that were killed, and which member they were."""
        self._producers = producers

    def start(self, name: str) -> None:
        """A process begins, where one was before or not."""
        lives, member = self.dead.pop(name, (0, ""))
        self.broker.owned.pop(member, None)
        self.instances[name] = Instance(self.broker, name, lives, self._producers)

    def kill(self, name: str) -> None:
        """A process ends between two steps; the group does not know yet."""
        gone = self.instances.pop(name)
        self.dead[name] = gone._lives, gone.member  # noqa: SLF001

    def throw_out(self, member: str) -> None:
        """The group has not heard of a member for long: it has died, or sleeps."""
        self.broker.owned.pop(member, None)
        self.broker.generation += 1

    def assign(self, name: str) -> None:
        """Partitions that nobody has go to a member."""
        instance = self.instances[name]
        free = self.broker.free()
        if instance.is_member and free:
            self.broker.owned[instance.member] |= free
            self.broker.generation += 1

    def forget(self, place: Place, *, hears: bool) -> None:
        """A broker dies, and comes back; `hears` is whether ends that were sent have reached it."""
        for instance in self.instances.values():
            for number, transaction in enumerate(instance.transactions):
                if hears and transaction.stage is Stage.ENDING and instance.told[number]:
                    with suppress(FencedError):
                        self.broker.commit(instance.producer(number), instance.epochs[number])
        self.broker.forget(place)
        for instance in self.instances.values():
            instance.lose_connections()

    def settle(self) -> None:
        """Let all instances do all that is left, undisturbed, and no transaction time out."""
        for name in [*self.dead]:
            self.throw_out(self.dead[name][1])
        if not self.instances:
            self.start("last")
        for _ in range(STEPS_MAX):
            names = sorted(self.instances)
            self.assign(names[0])
            for name in names:
                self.instances[name].hear()
            moved = sum(self._move(self.instances[name]) for name in names)
            for transaction in [*self.broker.unmarked]:
                self.broker.mark(transaction)
            if (
                all(self.broker.offsets[one] == self.broker.end for one in self.broker.offsets)
                and not moved
            ):
                return
        message = "it does not come to rest"
        raise AssertionError(message)

    def _move(self, instance: Instance) -> bool:
        """One does all that it can do now."""
        moved = False
        for step in list(instance.steps()):
            # The step before may have made it impossible.
            if step in instance.steps():
                instance.do(*step)
                moved = moved or step[0] != "close"
        return moved

    def check(self) -> None:
        """See that cleaned records count once, in order, as far as the offsets say."""
        self.broker.check_ends()
        for partition, offset in self.broker.offsets.items():
            place = "cleaned", partition
            read = self.broker.read(place)
            wanted = [(partition, position) for position in range(len(read))]
            assert read == wanted, f"partition {partition}: {read}"
            is_hidden = any(one.state != "open" for one in self.broker.open_in(place))
            assert is_hidden or len(read) == offset, f"partition {partition}: {read}, {offset}"

    def check_settled(self) -> None:
        """See that all is done, everywhere, and nothing stands open."""
        self.check()
        for place in self.broker.logs:
            assert not self.broker.open_in(place), place
        wanted = sorted((one, n) for one in self.broker.offsets for n in range(self.broker.end))
        assert sorted(map(_pair, self.broker.read(SHARED))) == wanted

    def check_ended(self) -> None:
        """See that no owner stands behind records that others have left open."""
        for instance in self.instances.values():
            for partition, task in instance.tasks.items():
                if (
                    task.is_running
                    and instance.is_member
                    and partition in instance.broker.owned[instance.member]
                ):
                    for one in self.broker.open_in(("cleaned", partition)):
                        assert one.state != "open" or one.name in instance.names, partition


def _pair(record: object) -> tuple[int, int]:
    assert isinstance(record, tuple)
    partition, position = record
    return partition, position
