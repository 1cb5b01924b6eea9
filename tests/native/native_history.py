"""A random life of a few groups: members are replaced or killed, and sums stay what they were."""

from dataclasses import dataclass, field
from random import Random

from native_calls import Call, perform
from native_outcomes import until_broken
from native_team import Formation, Player, Team, incarnation, leave, links_by_peer

Links = dict[int, tuple[str, int]]


@dataclass
class History:
    """Groups over random members of a team, and what has happened to them so far.

    A change is carried out in every group that holds the seat, as in a job.
    """

    team: Team
    chance: Random
    groups: list[Formation] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # for the message of a failure

    def begin(self) -> None:
        positions = range(self.team.size)
        memberships = [list(positions)]
        for _ in range(self.chance.randint(0, 3)):
            size = self.chance.randint(2, self.team.size)
            memberships.append(self.chance.sample(positions, size))
        for number, members in enumerate(memberships):
            players = [self.team.players[member] for member in members]
            self.groups.append(Formation(self.team, f"g{number}", players))
            self.groups[-1].advance()
            self.told.append(f"g{number} over {members}")

    def check(self) -> None:
        """Some calls on every group, each against the reference."""
        for group in self.groups:
            calls = [
                Call(
                    self.chance.choice(["all_reduce", "reduce_scatter", "all_reduce", "reduce"]),
                    self.chance.choice(["f32", "bf16", "f64", "f16"]),
                    self.chance.choice([1, 100, 9000, 70_001]),
                    self.chance.choice(["sum", "avg"]),
                    root=self.chance.randrange(group.size),
                    seed=self.chance.randrange(1 << 20),
                )
                for _ in range(2)
            ]
            group.all(perform, [*calls, Call("all_to_all", "i32", 50)])

    def change(self) -> None:
        """One incident: some members are replaced, planned or after a death, in all groups."""
        positions = self.chance.sample(
            range(self.team.size), self.chance.choice([0, 1, 1, 1, min(2, self.team.size - 1)])
        )
        way = self.chance.choice([self._leave, self._kill_at_rest, self._kill_at_work])
        self.told.append(f"{way.__name__} {positions}")
        stayers = [p for i, p in enumerate(self.team.players) if i not in positions]
        before = self._links(stayers)
        gone = [self.team.players[position] for position in positions]
        way(gone)
        fresh = {self.team.players[position]: self.team.replace(position) for position in positions}
        for group in self.groups:
            self._take_over(group, fresh)
        for player in gone:
            player.end()
        assert self._links(stayers) == before, self.told

    def _links(self, players: list[Player]) -> list[Links]:
        """The links among these players, as each sees them."""
        jobs = [(player, ()) for player in players]
        known = set(self.team.each(jobs, incarnation))
        seen = self.team.each(jobs, links_by_peer)
        return [{peer: link for peer, link in one.items() if peer in known} for one in seen]

    def _take_over(self, group: Formation, fresh: dict[Player, Player]) -> None:
        replaced = [seat for seat, player in enumerate(group.players) if player in fresh]
        group.players = [fresh.get(player, player) for player in group.players]
        for seat, figures in enumerate(group.advance()):
            opened = group.size - 1 if seat in replaced else len(replaced)
            if group is not self.groups[0]:
                opened = 0  # All groups share the links that the world has opened.
            assert figures["opened"] == opened, (self.told, group.name, seat, figures)
            assert figures["kept"] == group.size - 1 - opened, (self.told, figures)

    def _leave(self, gone: list[Player]) -> None:
        """Planned: they are still there while the others prepare; `change` ends them."""

    def _kill_at_rest(self, gone: list[Player]) -> None:
        for player in gone:
            player.end()

    def _kill_at_work(self, gone: list[Player]) -> None:
        """They die inside a sum of the first group, which holds everybody."""
        world = self.groups[0]
        if not gone:
            return
        call = Call("all_reduce", count=self.chance.choice([10, 60_000, 300_000]))
        world.start(until_broken, call)
        for player in gone:
            player.end()
        ended = self.team.finish([p for p in world.players if p not in gone])
        assert {one.kind for one in ended} == {"PeerLost"}, self.told

    def end(self) -> None:
        self.team.all(leave)
