#!/usr/bin/env python3
"""
The proof of the seat protocol: for any number of nodes, writes and epochs, not for a few of them.

    seat.py                   prove everything with z3
    seat.py --solver cvc5     prove it with another solver
    seat.py --mutants         break the protocol in every way listed: each must lose proofs and give a run that does harm
    seat.py --needed          drop each clause and each assumption in turn: each must be missed
    seat.py --slack           weaken what safety does not rest on: the proof must still go through
    seat.py --reachable       every transition can happen, and so can a whole failover
    seat.py --all             all of these, with z3
    --json                    one JSON object on stdout instead of text         -v    more detail

What is modelled
    The seat and every node's `Coordinator` (crates/core). Every action of a node is a transition: a guard (when it may
    happen) and an update (what it changes). The names are those of the code, and each variable and transition names the
    field or function it stands for. The model allows more than the code does wherever that is simpler and still safe:
    any number of requests at once, answers as late as one likes, reads that show any record that was ever on the seat,
    no takeover delay, no back-off, no wind-down at 80 % of the hold.
    A node of the model is one incarnation. A node that starts again is another one.

How time is modelled
    `now` is true time. No node looks at it. Each incarnation n has a clock: C(n, t) is what it shows at true time t. Nodes
    compare readings of their own clock only. sent_at, ren and since are true moments; what the code stores is the
    clock's reading at that moment.

What is assumed (the table ASSUMPTIONS has the full text)
    Clocks: A1 they stay within the drift that leases allow; A2 they are read after an answer has come.
    The store: A3 it honours conditions; A4 its version tags are unique; A5 its answers are true.
    From outside: A6 nobody deletes the seat; A7 nobody restores an old one; A8 a mark changes nothing else.
    Nodes: A9 a new incarnation at every start; A10 ProcessesStopped is true; A11 work checks its own deadline.
    Cold starts only: A12 the store's time stamps are right within a margin.

What is proved
    G1   At most one incarnation acts: its work runs and its guard has not ended.
    G1b  Whoever acts holds the seat, in the epoch it acts in.
    G2   All records of one epoch have the same holder.
    G2b  An epoch is led once.
    G3   The seat's epoch never goes down.
    G4   A holder whose vacate was sent does not act in that epoch.
    G5   Work starts only when no older work of the same incarnation runs.

How it is proved
    By induction. The invariant is a list of clauses. They hold at the start ("init"), every transition keeps each of
    them ("step"), and the goals follow from them ("goal", or "step" for goals about one transition). Each of these is
    one obligation: a formula that the solver must show to have no counterexample. Nodes and writes have no fixed number
    there. Clocks enter by A1 alone; the lemmas show that A1 follows from bounds on how fast clocks run.
    The core of it is clause L2: a record that its holder wrote still stands, or its hold is over in true time, or its
    holder is done with that epoch for good.

How to read it
    World: what never changes in a run. State: the variables. transitions(): what can happen. invariant() and the goals:
    what holds. MUTANTS, ASSUMPTIONS, SLACK, ABSENT: what breaks the proof and what does not. The stories are runs from
    the initial state that z3 finds; times in them are true time unless they name a clock.
"""
import argparse
import itertools
import json
import sys
import time
from typing import NamedTuple

try:
    import z3
    from z3 import And, BoolVal, Const, ForAll, Function, If, Implies, Not, Or, Real, RealVal
except ImportError:
    print("seat.py needs the Python package z3-solver: pip install z3-solver", file=sys.stderr)
    sys.exit(3)


# ----------------------------------------------------------------------------------------------------------------------
# What can be broken


class Change(NamedTuple):
    """One change to the model: what it is, and runs that show the harm it does.

    A run is the goal it breaks and its steps. `a.` and `b.` say which node takes a step; z3 finds everything else: times, epochs,
    what lands and what is read."""

    about: str
    runs: dict = {}


UP = "a.standby_read a.claim_free land a.lead "  # pod-a comes to lead
STOPPED = "a.ask a.work_ends a.stopped "  # it is asked to give leadership up, and its work stops
CLAIM = "b.claim_silent land b.lead "  # pod-b takes over from silence
SILENT = "b.standby_read tick " + CLAIM
FREE = "b.standby_read b.claim_free land b.lead "  # pod-b takes a free seat
RACE = "a.standby_read a.claim_free b.standby_read b.claim_free "  # both claim a free seat

ASSUMPTIONS = {  # A1 to A12. Duties are those that crates/core/src/lib.rs says the caller owes.
    "ClocksWithinDrift": Change(
        "A holder's hold is over before any other clock has counted the expiry of its record. With rates between lo and hi: "
        "hold * hi <= expiry * lo (duty 1, Config::tolerated_drift_permille).", dict(G1=UP + SILENT)),
    "ClockReadAfterAnswer": Change(
        "The clock is read before a request leaves and after its answer has come (Shell::feed).",
        dict(G1="tick " + UP + "b.standby_read " + CLAIM)),
    "ConditionsHonoured": Change(
        "The store lands a write only if the seat has the version that the write expects (startup.rs, on_probe).",
        dict(G1=RACE + "land land a.lead b.lead")),
    "TagsUnique": Change(
        "No two records have the same version tag. Where stores derive tags from content, the nonce makes them differ.",
        dict(G1=UP + "b.standby_read tick a.renew land a.renewed tick " + CLAIM)),
    "AnswersTrue": Change(
        "`Won` is answered only for a write that landed, and a read shows only what landed (duty 3; no more of it is needed).",
        dict(G1="a.standby_read a.claim_free a.lead b.standby_read b.claim_free land b.lead")),
    "NobodyDeletes": Change("Nobody deletes the seat.", dict(G1=UP + "delete " + FREE, G3=UP + "delete")),
    "NobodyRestores": Change(
        "Nobody puts an old record back on the seat.",
        dict(G1=UP + STOPPED + "a.vacate land a.lose " + FREE + "restore a.standby_read a.claim_free land a.lead")),
    "MarksOnlyMark": Change(
        "Whoever asks from outside for a step-down changes nothing but the mark and the nonce (SeatDocument::marked).",
        dict(G1=UP + "mark land " + FREE)),
    "NewIncarnation": Change(
        "Every start of a process draws a new incarnation (duty 7). Otherwise `retired` and the nonces start again.",
        dict(G1=UP + STOPPED + "a.vacate a.crash a.lead land " + FREE)),
    "StoppedIsTrue": Change(
        "ProcessesStopped comes only when the work of that epoch has ended (duty 5).",
        dict(G1=UP + "a.ask a.stopped a.vacate land " + FREE)),
    "WorkChecksDeadline": Change(
        "Work checks its deadline by itself before it acts (duty 6, LeaderGuard::check).", dict(G1=UP + SILENT)),
    "StoreClockMargin": Change(
        "If the store's time stamps of two objects are further apart than the expiry and store_clock_margin_ms, then the hold of "
        "the older one is over. Only a cold start needs this.", dict(G1=UP + "b.standby_read b.claim_cold land b.lead")),
}

RUST_MUTANTS = {  # The mutants of crates/core/src/mutants.rs that break a goal, under the same names.
    "DeadlineFromAnswer": Change(
        "The lease deadline counts from the answer to a renewal, not from its sending.",
        dict(G1=UP + "a.renew land b.standby_read tick a.renewed tick " + CLAIM)),
    "LostTakenForWon": Change("A refused write is taken for one that won.", dict(G1=RACE + "land a.lead b.lead")),
    "UnknownTakenForWon": Change(
        "A write of unknown outcome is taken for one that won.",
        dict(G1="a.standby_read a.claim_free a.lead b.standby_read b.claim_free land b.lead")),
    "EpochNotRaised": Change(
        "A claim takes the epoch of the seat it saw.",
        dict(G2=UP + STOPPED + "a.vacate land b.standby_read b.claim_free land")),
    "ExpiryTooShort": Change("A standby takes over after half a hold.", dict(G1=UP + SILENT)),
    "HoldTakenForExpiry": Change("A standby takes over after the hold, not the expiry.", dict(G1=UP + SILENT)),
    "LateRecordAdopted": Change(
        "A node that finds its own claim leads by it, however old it is.",
        dict(G1="a.standby_read a.claim_free land b.standby_read tick b.claim_silent a.lead land b.lead")),
    "VacatedBeforeStopped": Change(
        "The seat is vacated while the leader's work runs.",
        dict(G1=UP + "a.ask a.vacate land " + FREE, G4=UP + "a.ask a.vacate")),
    "EpochFromLastLeader": Change(
        "A claim counts from the leader last announced; a node that has seen none claims in epoch 1.",
        dict(G2=UP + STOPPED + "a.vacate land b.standby_read b.claim_free land")),
    "VacateResetsEpoch": Change(
        "A vacate sets the epoch to 0.", dict(G2b=UP + STOPPED + "a.vacate land " + FREE, G3=UP + STOPPED + "a.vacate land")),
    "StoreClockTrusted": Change(
        "A cold start goes by the store's time stamps without a margin.",
        dict(G1=UP + "b.standby_read b.claim_cold land b.lead")),
    "NonceIgnored": Change(
        "A leader that reads its own record back takes its last renewal for landed, whatever the nonce.",
        dict(G1=UP + "b.standby_read tick a.renew a.renewed tick " + CLAIM)),
    "SilenceFromSending": Change(
        "The silence counts from the sending of the read that saw the last change.",
        dict(G1="tick " + UP + "b.standby_read " + CLAIM)),
    "RetiredEpochLed": Change(
        "A node leads again in an epoch that it has lost.",
        dict(G2b=UP + "tick a.renew a.lose a.work_ends a.stopped land a.lead")),
    "IncarnationIgnored": Change(
        "A record of the same node id is taken for one's own, whichever incarnation wrote it.",
        dict(G1=UP + "b.standby_read b.vacate_own_record land " + FREE)),
    "OthersRecordVacated": Change(
        "A node that leaves vacates the seat it sees, whoever holds it.",
        dict(G1=UP + "b.standby_read b.vacate_own_record land b.rest " + FREE)),
    "RecoversBeforeStopped": Change(
        "Work is started again beside work that was told to stop and has not.",
        dict(G5=UP + "tick a.renew land a.renewed a.recover")),
    "SupersededIgnored": Change(
        "A leader that finds another record on the seat takes it for its own.",
        dict(G1=UP + STOPPED + "a.vacate land " + FREE
             + "a.leader_read a.vacate land a.lose a.standby_read a.claim_free land a.lead",
             G4=UP + STOPPED + "a.vacate land " + FREE + "a.leader_read a.vacate")),
    "StuckRecordVacated": Change(
        "`spare` is not set: the record of work that did not stop is vacated, and the node claims again.",
        dict(G1=UP + "a.lose a.vacate_own_record land " + FREE,
             G5=UP + "a.lose a.vacate_own_record land a.standby_read a.claim_free land a.lead")),
    "UnsafeStoreAccepted": Change(
        "The probe's verdict is ignored, so the store need not honour conditions.", dict(G1=RACE + "land land a.lead b.lead")),
}

OTHER_MUTANTS = {  # Mutants that the code does not have.
    "MarkCountedAsRenewal": Change(
        "A leader that reads its own record back counts its lease from that read.",
        dict(G1=UP + "mark land b.standby_read tick a.leader_read tick " + CLAIM)),
    "RecoversWhenAsked": Change(
        "Work is started again although leadership is being given up.",
        dict(G1=UP + STOPPED + "a.vacate a.recover land " + FREE, G4=UP + STOPPED + "a.vacate a.recover")),
    "SpareForgottenAtRest": Change(
        "Stop and start of the same incarnation forgets `spare`.",
        dict(G1=UP + "a.lose a.rest a.standby_read a.vacate_own_record land " + FREE)),
    "SpareIgnoredByClaims": Change(
        "A node claims and leads while work of a lost epoch has not been reported stopped.",
        dict(G5=UP + "a.lose b.standby_read tick b.claim_silent land a.standby_read tick a.claim_silent land a.lead")),
}
MUTANTS = RUST_MUTANTS | OTHER_MUTANTS

SLACK = {  # What safety does not rest on. The first is a mutant of mutant.rs.
    "DeadlineIgnored": Change("The coordinator does not check its deadline (enforce_deadline); work still checks its own."),
    "NoncesNeverForgotten": Change("A node recognises every write of its own that landed, not only those in `pending`."),
    "SparedUntilDeadline": Change(
        "While `spare` is set, claims and vacates wait for the deadline of that work and no longer, and clocks never go back."),
    "OwnSilentRecordClaimed": Change("A node claims over a silent record of its own."),
    "WorkOutlivesCrash": Change("When a node crashes, its work goes on until its deadline."),
}

ABSENT = {  # More mutants of mutant.rs that break no goal: the model never had what they take away.
    "TwoSeatRequests": "A node of the model has any number of requests under way.",
    "HighestForgotten": "A claim of the model goes above the seat it saw; it knows no highest epoch.",
    "VanishedSeatClaimed": "Nobody deletes the seat (NobodyDeletes), so there is no wait after it has vanished.",
    "TakeoverDelaySkipped": "There is no takeover delay.",
    "WindDownIgnored": "There is no wind-down at 80 % of the hold. Work may stop at any time, or not at all.",
    "MarkIgnored": "A mark need not be obeyed.",
    "UnknownEndsLeadership": "A leader may lose leadership at any time.",
    "CadenceStretched": "A leader renews at any time, or never.",
    "DeniedTakenForLost": "After any answer but `won`, a write may be remembered or forgotten.",
    "NoBackOff": "There are no pauses between requests.",
    "RankIgnored": "There are no ranks.",
    "SettleSkipped": "There is no settling time.",
    "CooldownSkipped": "There is no wait after a step-down.",
    "PresenceLiveForever": "There are no presences, but for the time stamp of one in a cold start.",
    "PresenceLeftBehind": "There are no presences, but for the time stamp of one in a cold start.",
}
CHANGES = ASSUMPTIONS | MUTANTS | SLACK


# ----------------------------------------------------------------------------------------------------------------------
# The model


def constants(name, sorts):
    return [Const(f"{name}_{i}", sort) for i, sort in enumerate(sorts)]


class World:
    """What never changes in a run: the sorts, the contents of writes, the clocks, the lease of each node.

    Without sizes there are any number of nodes and writes; with sizes, for a run, just so many."""

    SORTS = {}

    def __init__(self, broken=(), nodes=None, writes=None):
        assert set(broken) <= set(CHANGES), broken
        self.broken, self.nodes, self.writes = frozenset(broken), None, None
        if nodes is None:
            tag = ""
            self.Node, self.Write = z3.DeclareSort("Node"), z3.DeclareSort("Write")
            self.w0 = Const("w0", self.Write)
        else:
            tag = f"_{nodes}_{writes}"
            if tag not in World.SORTS:  # z3 lets a sort be declared once only
                World.SORTS[tag] = (z3.EnumSort("Node" + tag, [f"n{i}{tag}" for i in range(nodes)]),
                                    z3.EnumSort("Write" + tag, [f"w{i}{tag}" for i in range(writes)]))
            (self.Node, self.nodes), (self.Write, self.writes) = World.SORTS[tag]
            self.w0 = self.writes[0]
        node, write, real, whole, truth = self.Node, self.Write, z3.RealSort(), z3.IntSort(), z3.BoolSort()

        def fixed(name, *sorts):
            setattr(self, name, Function(name + tag, *sorts))

        # A write is a record (seat.rs, Seat) and a request to put it on the seat. w0 stands for "no seat" (Expect::Absent).
        # Writes are told apart as nonces are.
        fixed("epoch", write, whole)      # Seat::epoch
        fixed("holder", write, node)      # Seat::holder, with its incarnation
        fixed("held", write, truth)       # Seat::state: Held or Vacant
        fixed("claim", write, truth)      # FlightKind::Claim; otherwise it rewrites a record within its epoch
        fixed("own", write, truth)        # written by the holder it names; a mark from outside is not
        fixed("expect", write, write)     # the record whose version it expects (Request::WriteSeat)
        fixed("tag", write, real)         # Version: the store's tag of the record
        fixed("sent_at", write, real)     # SeatFlight::sent, PendingWrite::sent
        fixed("landed_at", write, real)
        fixed("stamp", write, real)       # SeenSeat::modified_ms: when it landed, by the store's clock
        fixed("same_id", node, node, truth)  # two incarnations of one node id (Holder::node)
        fixed("C", node, real, real)      # the clock: Coordinator::now
        fixed("HOLD", node, real)         # Lease::hold_ms, which n leads by and its records carry
        fixed("EXPIRY", node, node, real)  # Config::waits_ms: how long m waits for a record of n, as that record says
        fixed("H", node, real)            # the longest that HOLD can last in true time
        fixed("E", node, node, real)      # the shortest that EXPIRY can last in true time
        self.MARGIN = Const("MARGIN" + tag, real)  # Config::store_clock_margin_ms

    def has(self, name):
        assert name in CHANGES, name
        return name in self.broken

    def every(self, sorts, body):
        """body for all values. Written out if there are only so many."""
        if not sorts:
            return body()
        if self.nodes is not None:
            domain = {self.Node: self.nodes, self.Write: self.writes}
            return And([body(*values) for values in itertools.product(*[domain[sort] for sort in sorts])])
        values = constants("any", sorts)
        return ForAll(values, body(*values))

    def tags(self):
        """TagsUnique. Even without it, no record has the version of "no seat": that is Expect::Absent, not a tag."""
        if self.has("TagsUnique"):
            return self.every([self.Write], lambda w: Implies(self.tag(w) == self.tag(self.w0), w == self.w0))
        return self.every([self.Write, self.Write], lambda w, x: Implies(self.tag(w) == self.tag(x), w == x))

    def axioms(self):
        """ClocksWithinDrift, in the form the proof uses; see lemmas(). And TagsUnique."""
        C, HOLD, H, EXPIRY, E = self.C, self.HOLD, self.H, self.EXPIRY, self.E
        n, m = z3.Consts("clock_n clock_m", self.Node)
        a, b = z3.Reals("moment_a moment_b")
        hold = Implies(And(a <= b, C(n, b) < C(n, a) + HOLD(n)), b < a + H(n))
        expiry = Implies(And(a <= b, C(m, b) >= C(m, a) + EXPIRY(m, n)), b >= a + E(m, n))
        out = [ForAll([n, a, b], hold, patterns=[z3.MultiPattern(C(n, a), C(n, b))]),
               ForAll([m, n, a, b], expiry, patterns=[z3.MultiPattern(C(m, a), C(m, b), EXPIRY(m, n))]),
               self.tags()]
        if self.has("SparedUntilDeadline"):
            forward = Implies(a <= b, C(n, a) <= C(n, b))
            out.append(ForAll([n, a, b], forward, patterns=[z3.MultiPattern(C(n, a), C(n, b))]))
        if not self.has("ClocksWithinDrift"):
            out.append(self.every([self.Node, self.Node], lambda m, n: H(n) <= E(m, n)))
        return out


class State:
    """The variables. Functions are Python callables, so an update replaces one value and leaves all others alone."""

    NODE = dict(
        lead=z3.BoolSort,   # Coordinator::phase is Phase::Leading
        conf=None,          # not in the code: the write that Tenure::renewed counts from; its epoch is Tenure::epoch
        ren=z3.RealSort,    # Tenure::renewed
        work=z3.BoolSort,   # Tenure::processes
        asked=z3.BoolSort,  # Tenure::drain is DrainCause::Asked
        spare=z3.BoolSort,  # Coordinator::spare is set
        runs=z3.BoolSort,   # not in the code: work really runs
        ret=z3.IntSort,     # Coordinator::retired
        known=z3.BoolSort,  # Coordinator::seen is Seen::Seat or Seen::Absent
        seen=None,          # what it holds: SeenSeat::seat and SeenSeat::version
        since=z3.RealSort,  # SeenSeat::since
    )
    WRITE = dict(
        sent=z3.BoolSort,    # it has left its node; it lands at any later time, or never
        landed=z3.BoolSort,  # it has been on the seat
        pend=z3.BoolSort,    # in Coordinator::seat_flight or Coordinator::pending: its sender recognises it
        led=z3.BoolSort,     # not in the code: a tenure began by it
    )

    def __init__(self, g, **variables):
        self.g = g
        self.__dict__.update(variables)

    @staticmethod
    def fresh(g, name):
        def variables(at, sorts):
            return {v: Function(f"{v}_{name}", at, sort() if sort else g.Write) for v, sort in sorts.items()}
        return State(g, **variables(g.Node, State.NODE), **variables(g.Write, State.WRITE),
                     cur=Const(f"cur_{name}", g.Write),  # the record on the seat
                     now=Real(f"now_{name}"))            # true time

    def but(self, **changes):
        """The state after an update. field=(point, value) changes one value of a function, field=value a plain variable."""
        new = dict(self.__dict__)
        for field, value in changes.items():
            if isinstance(value, tuple):
                new[field] = lambda x, old=new[field], value=value: If(x == value[0], value[1], old(x))
            else:
                new[field] = value
        return State(**new)

    def equals(self, other):
        def same(sorts, values):
            return [getattr(self, v)(x) == getattr(other, v)(x) for v in sorts for x in values]
        return And(self.cur == other.cur, self.now == other.now,
                   *same(State.NODE, self.g.nodes), *same(State.WRITE, self.g.writes))

    def initial(self):
        g = self.g
        return [
            g.every([g.Node], lambda n: And(Not(self.lead(n)), Not(self.work(n)), Not(self.spare(n)), Not(self.runs(n)),
                                            Not(self.known(n)), self.ret(n) == 0)),
            g.every([g.Write], lambda w: And(self.sent(w) == (w == g.w0), self.landed(w) == (w == g.w0),
                                             Not(self.pend(w)), Not(self.led(w)))),
            self.cur == g.w0, Not(g.held(g.w0)), g.epoch(g.w0) == 0,
            g.sent_at(g.w0) <= g.landed_at(g.w0), g.landed_at(g.w0) <= self.now,
        ]

    def led_epoch(self, n):
        """Tenure::epoch, also of work that outlived its tenure."""
        return self.g.epoch(self.conf(n))

    def clock(self, n):
        return self.g.C(n, self.now)

    def deadline(self, n):
        """Coordinator::deadline, which work knows from StartProcesses and ExtendLease."""
        return self.g.C(n, self.ren(n)) + self.g.HOLD(n)

    def in_hold(self, n):
        return self.clock(n) < self.deadline(n)

    def acts(self, n):
        """Work runs and finds its guard valid. WorkChecksDeadline: past its deadline it does nothing."""
        return self.runs(n) if self.g.has("WorkChecksDeadline") else And(self.runs(n), self.in_hold(n))

    def over(self, n, epoch):
        """n does not act in this epoch and never will again: it has retired it, or it vacates it; and its work has ended."""
        works = self.acts(n) if self.g.has("SparedUntilDeadline") else self.runs(n)
        retired = And(self.ret(n) >= epoch, Not(And(works, self.led_epoch(n) == epoch)))
        vacating = And(self.lead(n), self.led_epoch(n) == epoch, self.asked(n), Not(self.work(n)))
        return Or(retired, vacating)


def most(a, b):
    return If(a >= b, a, b)


def transitions(g):
    """name -> (sorts of the parameters, function (state, *parameters) -> (guard, next state)). In those named in SENDS the
    write w is a new one."""
    N, W, R = g.Node, g.Write, z3.RealSort()
    epoch, holder, held, tag = g.epoch, g.holder, g.held, g.tag
    out = {}

    def transition(*sorts):
        def add(function):
            out[function.__name__] = (sorts, function)
        return add

    def unless(change, guard):
        return BoolVal(True) if g.has(change) else guard

    def new(s, w, **content):
        """w was never sent before, has this content, and is sent now."""
        return And(Not(s.sent(w)), Not(s.landed(w)), w != g.w0, g.sent_at(w) == s.now,
                   *[getattr(g, field)(w) == value for field, value in content.items()])

    def is_me(n, other, leaves=False):
        """Coordinator::is_me."""
        if leaves and g.has("OthersRecordVacated"):
            return BoolVal(True)
        return Or(other == n, g.same_id(n, other)) if g.has("IncarnationIgnored") else other == n

    def learned(s, n, v):
        """observe.rs, learn_seat: a version that was seen before teaches nothing new."""
        same = And(s.known(n), tag(s.seen(n)) == tag(v))
        return same, If(same, s.seen(n), v)

    def ended(s, n, when=BoolVal(True)):
        """leader.rs, lose: the epoch is retired, and work not reported stopped becomes `spare`."""
        spare = s.spare(n) if g.has("StuckRecordVacated") else Or(s.spare(n), And(when, s.work(n)))
        return dict(lead=(n, And(s.lead(n), Not(when))), work=(n, And(s.work(n), Not(when))), spare=(n, spare),
                    ret=(n, If(when, most(s.ret(n), s.led_epoch(n)), s.ret(n))))

    def arrived(s, w):
        """What an answer `won`, or its own nonce read back, tells of a write."""
        if g.has("UnknownTakenForWon") or g.has("AnswersTrue"):
            return s.sent(w)
        return Or(s.landed(w), tag(g.expect(w)) != tag(s.cur)) if g.has("LostTakenForWon") else s.landed(w)

    def recognised(s, w):
        """Without NewIncarnation the nonces repeat, so an old write is taken for a new one."""
        return unless("NoncesNeverForgotten", unless("NewIncarnation", s.pend(w)))

    def wait(n, v):
        """Config::waits_ms."""
        if g.has("ExpiryTooShort"):
            return g.HOLD(holder(v)) / 2
        return g.HOLD(holder(v)) if g.has("HoldTakenForExpiry") else g.EXPIRY(n, holder(v))

    def spared(s, n):
        """Not(spared) guards claims and vacates. For G1 to G4 it would be enough to wait for the deadline of that work."""
        return And(s.spare(n), s.in_hold(n)) if g.has("SparedUntilDeadline") else s.spare(n)

    # ---- time, the store, and whoever else writes the seat

    @transition(R)
    def tick(s, t):
        return t >= s.now, s.but(now=t)

    @transition(W)
    def land(s, w):
        """The store puts a write on the seat, however late, if the version it expects is there at that moment."""
        met = unless("ConditionsHonoured", unless("UnsafeStoreAccepted", tag(g.expect(w)) == tag(s.cur)))
        return And(s.sent(w), Not(s.landed(w)), g.landed_at(w) == s.now, met), s.but(landed=(w, True), cur=w)

    @transition(W)
    def mark(s, w):
        """tenure/src/step_down.rs: somebody outside asks the holder to step down."""
        v = g.expect(w)
        content = dict(claim=False, own=False, holder=holder(v), epoch=epoch(v))
        if not g.has("MarksOnlyMark"):
            content["held"] = True
        return And(s.landed(v), held(v), new(s, w, **content)), s.but(sent=(w, True))

    if g.has("NobodyDeletes"):
        @transition()
        def delete(s):
            return BoolVal(True), s.but(cur=g.w0)

    if g.has("NobodyRestores"):
        @transition(W)
        def restore(s, w):
            return s.landed(w), s.but(cur=w)

    # ---- standby

    @transition(N, W, R)
    def standby_read(s, n, v, sent):
        """coordinator.rs, on_seat_read, while not leading: also while starting or watching. An answer `won` to a vacate, or to a
        write of a lost tenure, has the same effect (observe.rs, wrote). The read was sent at `sent`."""
        same, seen = learned(s, n, v)
        first = sent if g.has("SilenceFromSending") or g.has("ClockReadAfterAnswer") else s.now
        return And(Not(s.lead(n)), s.landed(v), sent <= s.now), s.but(
            seen=(n, seen), known=(n, True), since=(n, If(same, s.since(n), first)))

    def claims(s, n, w, reason):
        """campaign.rs, claim. The code also claims above `highest` and `floor`; above the seat it saw is enough."""
        v = s.seen(n)
        number = epoch(w) > epoch(v)
        if g.has("EpochNotRaised"):
            number = epoch(w) == most(epoch(v), 1)
        if g.has("EpochFromLastLeader"):
            number = epoch(w) == 1  # `announced` is None: it has seen no leader
        guard = And(Not(s.lead(n)), s.known(n), unless("SpareIgnoredByClaims", Not(spared(s, n))), reason, number,
                    new(s, w, claim=True, own=True, held=True, holder=n, expect=v))
        return guard, s.but(sent=(w, True), pend=(w, True))

    def others(n, v):
        """Own records are never claimed over (standby.rs, standby_read: they go to on_own_record)."""
        return And(held(v), unless("OwnSilentRecordClaimed", Not(is_me(n, holder(v)))))

    @transition(N, W)
    def claim_free(s, n, w):
        """standby.rs, on_free_seat: there is no seat, or it is vacant."""
        return claims(s, n, w, Not(held(s.seen(n))))

    @transition(N, W)
    def claim_silent(s, n, w):
        """standby.rs, on_silent_seat: the record has not changed for its expiry, since the end of the read that first saw it."""
        v = s.seen(n)
        return claims(s, n, w, And(others(n, v), s.clock(n) >= g.C(n, s.since(n)) + wait(n, v)))

    @transition(N, W, R)
    def claim_cold(s, n, w, presence):
        """campaign.rs, age_seat: by the store's time stamps, the record is far older than this node's own presence, which was
        written before now. `meaning` is StoreClockMargin: it limits the store, not the node."""
        v = s.seen(n)
        margin = 0 if g.has("StoreClockTrusted") else g.MARGIN
        far = presence > g.stamp(v) + g.EXPIRY(n, holder(v)) + g.MARGIN
        meaning = unless("StoreClockMargin", Implies(far, s.now >= g.landed_at(v) + g.H(holder(v))))
        return claims(s, n, w, And(others(n, v), presence > g.stamp(v) + wait(n, v) + margin, meaning))

    def own_record(s, n):
        """standby.rs, own_record."""
        return And(Not(s.lead(n)), s.known(n), held(s.seen(n)), is_me(n, holder(s.seen(n)), leaves=True))

    def vacant(s, n, w):
        """coordinator.rs, send_vacate: the record last seen, as vacant."""
        v = s.seen(n)
        number = 0 if g.has("VacateResetsEpoch") else epoch(v)
        return new(s, w, claim=False, own=holder(v) == n, held=False, holder=holder(v), epoch=number, expect=v)

    @transition(N)
    def retire_own_record(s, n):
        """standby.rs, vacate_own_record: the epoch is retired even if the vacate must wait."""
        return own_record(s, n), s.but(ret=(n, most(s.ret(n), epoch(s.seen(n)))))

    @transition(N, W)
    def vacate_own_record(s, n, w):
        """standby.rs, vacate_own_record: a record of its own that it does not lead by."""
        return And(own_record(s, n), Not(spared(s, n)), vacant(s, n, w)), s.but(
            sent=(w, True), pend=(w, True), ret=(n, most(s.ret(n), epoch(s.seen(n)))))

    @transition(N, W)
    def lead(s, n, w):
        """campaign.rs, on_claimed: an answer `won`, or its own nonce read back, however late. The code asks for 80 % of the
        hold; the hold is enough. Not(spare): on_claimed asks for Role::Candidate, a candidate has a campaign, a campaign
        starts only without `spare` (start_campaign_after), and `spare` is set only where a new Standby begins (lose)."""
        in_time = unless("LateRecordAdopted", s.clock(n) < g.C(n, g.sent_at(w)) + g.HOLD(n))
        allowed = unless("RetiredEpochLed", And(epoch(w) > s.ret(n), unless("SpareIgnoredByClaims", Not(s.spare(n)))))
        guard = And(Not(s.lead(n)), recognised(s, w), arrived(s, w), g.own(w), held(w), holder(w) == n, allowed, in_time)
        return guard, s.but(lead=(n, True), conf=(n, w), ren=(n, s.now if g.has("LateRecordAdopted") else g.sent_at(w)),
                            work=(n, True), runs=(n, True), asked=(n, False), pend=(w, False), led=(w, True),
                            seen=(n, w), known=(n, True), since=(n, s.now))

    # ---- leader

    def leads(s, n):
        """Coordinator::handle calls enforce_deadline before anything else."""
        return And(s.lead(n), unless("DeadlineIgnored", s.in_hold(n)))

    @transition(N, W)
    def renew(s, n, w):
        """leader.rs, renew: a copy of the record last seen, with a new nonce."""
        v = s.seen(n)
        return And(leads(s, n), s.known(n), new(s, w, claim=False, own=holder(v) == n, held=held(v), holder=holder(v),
                                                epoch=epoch(v), expect=v)), s.but(sent=(w, True), pend=(w, True))

    @transition(N, W)
    def renewed(s, n, w):
        """leader.rs, on_renewed: an answer `won`, or its own nonce read back. The code need not compare holder and epoch after
        `won`: one request at a time, so a renewal that is answered in a tenure was sent in it."""
        guard = And(leads(s, n), recognised(s, w), unless("NonceIgnored", arrived(s, w)), g.own(w), held(w), holder(w) == n,
                    epoch(w) == s.led_epoch(n))
        start = s.now if g.has("DeadlineFromAnswer") else g.sent_at(w)
        later = g.C(n, start) > g.C(n, s.ren(n))
        return guard, s.but(ren=(n, If(later, start, s.ren(n))), conf=(n, If(later, w, s.conf(n))), pend=(w, False),
                            seen=(n, s.seen(n) if g.has("NonceIgnored") else w), since=(n, s.now), known=(n, True))

    @transition(N, W)
    def leader_read(s, n, v):
        """leader.rs, leader_read: its own record in its epoch, marked or not, is taken up; anything else ends the tenure."""
        same, seen = learned(s, n, v)
        mine = unless("SupersededIgnored", And(is_me(n, holder(seen)), epoch(seen) == s.led_epoch(n), held(seen)))
        ren = If(mine, s.now, s.ren(n)) if g.has("MarkCountedAsRenewal") else s.ren(n)
        return And(leads(s, n), s.landed(v)), s.but(
            seen=(n, seen), known=(n, True), since=(n, If(same, s.since(n), s.now)), ren=(n, ren), **ended(s, n, Not(mine)))

    @transition(N)
    def ask(s, n):
        """leader.rs, drain_because: a stop, a step-down, a mark, or an epoch given out elsewhere (on_raise)."""
        return s.lead(n), s.but(asked=(n, True))

    @transition(N)
    def work_ends(s, n):
        return s.runs(n), s.but(runs=(n, False))

    @transition(N)
    def stopped(s, n):
        """leader.rs, on_processes_stopped: for the work of this tenure, or for work spared. A report that the code ignores is
        one that did not come."""
        guard = And(Or(s.work(n), s.spare(n)), unless("StoppedIsTrue", Not(s.runs(n))))
        return guard, s.but(work=(n, False), spare=(n, False))

    @transition(N)
    def recover(s, n):
        """leader.rs, recover: work that stopped because the lease was at risk (DrainCause::AtRisk) starts again."""
        may = And(unless("RecoversWhenAsked", Not(s.asked(n))), unless("RecoversBeforeStopped", Not(s.work(n))))
        return And(leads(s, n), may), s.but(work=(n, True), runs=(n, True))

    @transition(N, W)
    def vacate(s, n, w):
        """leader.rs, advance_vacate."""
        gone = unless("VacatedBeforeStopped", Not(s.work(n)))
        return And(leads(s, n), s.asked(n), gone, s.known(n), vacant(s, n, w)), s.but(sent=(w, True), pend=(w, True))

    @transition(N)
    def lose(s, n):
        """leader.rs, lose: by its deadline, after a vacate that won, with work that does not stop, or for any other reason."""
        return s.lead(n), s.but(**ended(s, n))

    # ---- anybody, at any time

    @transition(N)
    def crash(s, n):
        """The process is gone, but its writes may still land. This incarnation never comes back. The model lets it go on as a
        standby that has retired its epoch, which only adds runs."""
        after = ended(s, n, s.lead(n)) | dict(known=(n, False))
        if not g.has("WorkOutlivesCrash"):
            after |= dict(work=(n, False), spare=(n, False), runs=(n, False))
        if g.has("NewIncarnation"):
            after |= dict(ret=(n, 0))
        return BoolVal(True), s.but(**after)

    @transition(N)
    def unreadable(s, n):
        """Seen::Unreadable: a read finds an object that is no seat."""
        return BoolVal(True), s.but(known=(n, False))

    @transition(W)
    def forget(s, w):
        """It leaves Coordinator::pending, or is answered `unavailable` or `denied`, truly or not."""
        return s.pend(w), s.but(pend=(w, False))

    @transition(N)
    def rest(s, n):
        """role.rs, become_idle, then Input::Start of the same incarnation. `retired` and `spare` outlive it."""
        spare = BoolVal(False) if g.has("SpareForgottenAtRest") else s.spare(n)
        return Not(s.lead(n)), s.but(known=(n, False), spare=(n, spare))

    return out


SENDS = {"mark", "claim_free", "claim_silent", "claim_cold", "vacate_own_record", "renew", "vacate"}


# ----------------------------------------------------------------------------------------------------------------------
# What holds: name -> (sorts, function (state, *values) -> formula)


def invariant(g):
    N, W = g.Node, g.Write
    epoch, holder, held, expect, own = g.epoch, g.holder, g.held, g.expect, g.own

    def real(s, w):
        return And(s.sent(w), w != g.w0)

    return {
        # The store
        "S1 a write was sent in the past": ([W], lambda s, w: Implies(s.sent(w), g.sent_at(w) <= s.now)),
        "S2 a write lands after it was sent": ([W], lambda s, w: Implies(
            s.landed(w), And(g.sent_at(w) <= g.landed_at(w), g.landed_at(w) <= s.now))),
        "S3 the current record has landed, and so has no seat": ([], lambda s: And(s.landed(s.cur), s.landed(g.w0))),
        "S4 nothing landed after the current record": ([W], lambda s, w: Implies(
            s.landed(w), g.landed_at(w) <= g.landed_at(s.cur))),
        "S5 no epoch is above the current one": ([W], lambda s, w: Implies(s.landed(w), epoch(w) <= epoch(s.cur))),
        "S6 one holder per epoch (G2)": ([W, W], lambda s, w, x: Implies(
            And(s.landed(w), s.landed(x), epoch(w) == epoch(x)), holder(w) == holder(x))),
        # Writes under way
        "M1 a claim raises the epoch": ([W], lambda s, w: Implies(And(real(s, w), g.claim(w)), epoch(w) > epoch(expect(w)))),
        "M2 other writes keep epoch and holder": ([W], lambda s, w: Implies(
            And(real(s, w), Not(g.claim(w))), And(epoch(w) == epoch(expect(w)), holder(w) == holder(expect(w))))),
        "M3 a claim over a held record is sent after that one's hold": ([W], lambda s, w: Implies(
            And(real(s, w), g.claim(w), held(expect(w))),
            g.sent_at(w) >= g.landed_at(expect(w)) + g.H(holder(expect(w))))),
        # What nodes know
        "K1 what was seen landed before its silence counts": ([N], lambda s, n: Implies(
            s.known(n), And(g.landed_at(s.seen(n)) <= s.since(n), s.since(n) <= s.now))),
        "K2 a leader last saw its own record of its epoch": ([N], lambda s, n: Implies(
            And(s.lead(n), s.known(n)),
            And(held(s.seen(n)), holder(s.seen(n)) == n, epoch(s.seen(n)) == s.led_epoch(n)))),
        "K3 lease and work rest on a landed write of its own": ([N], lambda s, n: Implies(
            Or(s.lead(n), s.runs(n)),
            And(s.landed(s.conf(n)), held(s.conf(n)), own(s.conf(n)), holder(s.conf(n)) == n,
                s.ren(n) <= g.sent_at(s.conf(n))))),
        "K4 a leader has not retired its epoch": ([N], lambda s, n: Implies(s.lead(n), s.led_epoch(n) > s.ret(n))),
        "K5 the coordinator knows of work that runs": ([N], lambda s, n: Implies(
            s.runs(n), If(s.lead(n), s.work(n), And(s.spare(n), s.led_epoch(n) <= s.ret(n))))),
        # The core of the proof
        "L1 whose vacate was sent is done with that epoch (G4)": ([W], lambda s, w: Implies(
            And(real(s, w), Not(held(w))), s.over(holder(w), epoch(w)))),
        "L2 a record stands, or its hold is over, or its holder is done": ([W], lambda s, w: Implies(
            And(s.landed(w), held(w), own(w)),
            Or(And(epoch(s.cur) == epoch(w), held(s.cur)), s.now >= g.sent_at(w) + g.H(holder(w)),
               s.over(holder(w), epoch(w))))),
        "L3 whoever led by a write leads in its epoch or has retired it": ([W], lambda s, w: Implies(
            s.led(w), And(s.landed(w), Or(s.ret(holder(w)) >= epoch(w),
                                          And(s.lead(holder(w)), s.led_epoch(holder(w)) == epoch(w)))))),
        # Nothing else needs this one: it is a goal.
        "L4 an epoch is led once (G2b)": ([W, W], lambda s, w, x: Implies(
            And(s.led(w), s.led(x), epoch(w) == epoch(x)), w == x)),
    }


def goals(g):
    """Goals about a state."""
    clauses = invariant(g)
    return {
        "G1 at most one incarnation acts": ([g.Node, g.Node], lambda s, n, m: Implies(And(s.acts(n), s.acts(m)), n == m)),
        "G1b whoever acts holds the seat": ([g.Node], lambda s, n: Implies(
            s.acts(n), And(g.held(s.cur), g.holder(s.cur) == n, g.epoch(s.cur) == s.led_epoch(n)))),
        "G2 all records of one epoch have the same holder": clauses["S6 one holder per epoch (G2)"],
        "G2b an epoch is led once": clauses["L4 an epoch is led once (G2b)"],
        "G4 a holder whose vacate was sent does not act in that epoch": ([g.Write], lambda s, w: Implies(
            And(s.sent(w), w != g.w0, Not(g.held(w)), s.acts(g.holder(w))), s.led_epoch(g.holder(w)) != g.epoch(w))),
    }


def step_goals(g, label):
    """Goals about one transition: name -> function (before, after, *parameters) -> formula."""
    out = {"G3 the seat's epoch never goes down": lambda s, t, *_: g.epoch(t.cur) >= g.epoch(s.cur)}
    if label in ("lead", "recover"):
        out["G5 work starts only when no older work runs"] = lambda s, t, n, *_: Not(s.runs(n))
    return out


# ----------------------------------------------------------------------------------------------------------------------
# The proof


def lemmas():
    """ClocksWithinDrift and StoreClockMargin follow from bounds on clocks: rates between lo and hi, readings off by at most q
    besides (whole milliseconds, for example). The only products of variables; no quantifiers."""
    lo, hi, hold, expiry, a, b, ca, cb, H, E, q, f = z3.Reals("lo hi hold expiry a b ca cb H E q factor")
    clocks = [0 < lo, lo <= hi, 0 <= q, a <= b, hold > 0, expiry > 0, H * lo == hold + q, E * hi == expiry - q,
              lo * (b - a) - q <= cb - ca, cb - ca <= hi * (b - a) + q]
    products = [lo * hi > 0, (E - H) * (lo * hi) == E * hi * lo - H * lo * hi]  # what cvc5 wants to be told
    drift = (hold + q) * hi <= (expiry - q) * lo
    yield "lemma: a hold lasts at most H", clocks, Implies(cb < ca + hold, b < a + H)
    yield "lemma: an expiry lasts at least E", clocks, Implies(cb >= ca + expiry, b >= a + E)
    yield "lemma: the products are right", [0 < lo, lo <= hi], And(products)
    yield "lemma: H <= E if (hold + q) * hi <= (expiry - q) * lo", clocks + products + [drift], H <= E
    yield "lemma: so it is if expiry = factor * hold, hi <= factor * lo, and q = 0", [
        0 < lo, hold > 0, expiry == f * hold, hi <= f * lo, q == 0], drift
    margin, presence, stamp, now, landed = z3.Reals("margin presence stamp now landed")
    yield "lemma: H <= expiry if H <= E and hi >= 1", clocks + [H <= E, hi >= 1], H <= expiry
    yield "lemma: so stamps may be off by half the margin", [
        presence <= now + margin / 2, landed - margin / 2 <= stamp, presence > stamp + expiry + margin, H <= expiry,
    ], now >= landed + H


def obligations(g, drop=()):
    """All obligations but those of dropped clauses: (name, hypotheses, what must follow)."""
    clauses = {name: clause for name, clause in invariant(g).items() if name not in drop}
    s, axioms = State.fresh(g, "s"), g.axioms()
    start = axioms + s.initial()
    for name, (sorts, body) in clauses.items():
        yield f"init: {name}", start, body(s, *constants("x", sorts))
    before = axioms + [g.every(sorts, lambda *xs, body=body: body(s, *xs)) for sorts, body in clauses.values()]
    for name, (sorts, body) in goals(g).items():
        yield f"goal: {name}", before, body(s, *constants("x", sorts))
    for label, (sorts, step) in transitions(g).items():
        parameters = constants(label, sorts)
        guard, after = step(s, *parameters)
        taken = before + [guard]
        for name, (sorts, body) in clauses.items():
            yield f"step {label}: {name}", taken, body(after, *constants("x", sorts))
        for name, body in step_goals(g, label).items():
            yield f"step {label}: {name}", taken, body(s, after, *parameters)


def by_z3(hypotheses, goal):
    solver = z3.Solver()
    # A proof needs only instances of the clauses. Without model finding, what cannot be proved ends as `unknown`, most often
    # within milliseconds. The limit counts z3's own steps, so that a busy machine changes no answer; proofs take some 20,000.
    solver.set("rlimit", 5_000_000, "smt.mbqi", False, "auto_config", False)
    solver.add(*hypotheses, Not(goal))
    return str(solver.check())


def by_cvc5(hypotheses, goal):
    import cvc5
    text = z3.Solver()
    text.add(*hypotheses, Not(goal))
    lines = [line for line in text.to_smt2().splitlines() if not line.startswith("(set-info")]
    solver = cvc5.Solver()
    solver.setOption("tlimit-per", "60000")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, "\n".join(["(set-logic ALL)"] + lines), "obligation")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said += command.invoke(solver, parser.getSymbolManager())
    return said.strip()


PROVED = {}  # What z3 has proved, by the formulas themselves: most changes leave most obligations as they are.


def prove(todo, solver="z3", enough=None):
    """Tries the obligations in turn, until `enough` of them were lost. Returns [(name, proved, seconds)]."""
    out = []
    for name, hypotheses, goal in todo:
        began, key = time.time(), (solver, goal.get_id(), *[h.get_id() for h in hypotheses])
        if key not in PROVED:
            answer = {"z3": by_z3, "cvc5": by_cvc5}[solver](hypotheses, goal)
            said = "proved" if answer == "unsat" else f"not proved ({answer})"
            detail(f"  {said:22s} {(time.time() - began) * 1000:7.1f} ms  {name}")
            if answer == "unsat":
                PROVED[key] = (hypotheses, goal)  # kept, so that the ids stay theirs
        out.append((name, key in PROVED, time.time() - began))
        if enough and len(lost(out)) >= enough:
            break
    return out


def lost(results):
    return [name for name, proved, _ in results if not proved]


# ----------------------------------------------------------------------------------------------------------------------
# Runs from the initial state


TELL = {
    "tick": "time passes; {clocks}",
    "land": "{w} lands: the seat is now {w_is}",
    "mark": "somebody outside sends {w} on top of {expected}, to ask {w_holder} to step down: {w_is}",
    "delete": "somebody deletes the seat",
    "restore": "somebody puts {w} back on the seat, {w_is}",
    "standby_read": "{n} reads the seat{asked}: {w_full}",
    "claim_free": "{n} sends {w}: it claims in epoch {epoch}, because it saw {seen_full}",
    "claim_silent": "{n} sends {w}: it claims in epoch {epoch}, because {seen} has not changed for {silence} on its clock",
    "claim_cold": "{n} sends {w}: it claims in epoch {epoch}, because {seen} is {stamp_age} old by the store's clock "
                  "(truly {age})",
    "retire_own_record": "{n} finds {seen} of its own and retires its epoch",
    "vacate_own_record": "{n}, which does not lead, sends {w}: it vacates {seen_full}{still}",
    "lead": "{n} leads in epoch {epoch} by {w}, sent at {sent}{landed}; {deadline}{beside}",
    "renew": "{n} sends {w}: it renews {seen}",
    "renewed": "{n} counts {w}, sent at {sent}, as a renewal{landed}; {deadline}",
    "leader_read": "{n} reads the seat as leader: {w_full}; {outcome}",
    "ask": "{n} is asked to give leadership up",
    "work_ends": "the work of {n} ends",
    "stopped": "{n} is told that its work has stopped{still}",
    "recover": "{n} starts its work again{beside}",
    "vacate": "{n} sends {w}: it vacates {seen_full}{still}",
    "lose": "{n} loses leadership{still}",
    "crash": "{n} crashes{again}",
    "unreadable": "{n} reads something that is no seat",
    "forget": "the sender of {w} forgets it",
    "rest": "{n} stops and starts again, as the same incarnation{still}",
}


class Story:
    """One run in words. Everything is looked up in z3's model of it."""

    def __init__(self, g, model):
        self.g, self.model = g, model
        self.names = ("pod-a/1", "pod-a/2") if g.has("IncarnationIgnored") else ("pod-a", "pod-b")

    def value(self, term):
        return self.model.eval(term, model_completion=True)

    def true(self, term):
        return z3.is_true(self.value(term))

    def seconds(self, term):
        return f"{float(self.value(term).as_fraction()):.1f} s"

    def node(self, n):
        return self.names[list(map(str, self.g.nodes)).index(str(self.value(n)))]

    def write(self, w):
        number = list(map(str, self.g.writes)).index(str(self.value(w)))
        return f"write {number}" if number else "no seat"

    def content(self, w):
        epoch = self.value(self.g.epoch(w))
        held = f"held by {self.node(self.g.holder(w))} in epoch {epoch}"
        return held if self.true(self.g.held(w)) else f"vacant after epoch {epoch}"

    def full(self, w):
        return self.write(w) if self.write(w) == "no seat" else f"{self.write(w)}, {self.content(w)}"

    def step(self, label, parameters, s, t):
        g, words = self.g, {}
        n, w, real = (next((p for p in parameters if p.sort() == sort), None) for sort in (g.Node, g.Write, z3.RealSort()))
        if n is not None:
            seen, runs = s.seen(n), self.true(s.runs(n))
            deadline = f"its deadline is {self.seconds(t.deadline(n))} on its clock"
            words = dict(
                n=self.node(n), seen=self.write(seen), seen_full=self.full(seen), deadline=deadline,
                outcome=deadline if self.true(t.lead(n)) else "it loses leadership",
                silence=self.seconds(s.clock(n) - g.C(n, s.since(n))), age=self.seconds(s.now - g.landed_at(seen)),
                still=", while its work still runs" * runs, beside=", beside older work that still runs" * runs,
                again=" and starts again as the same incarnation: `retired` and its nonces start again" * g.has("NewIncarnation"))
        if w is not None:
            words |= dict(
                w=self.write(w), w_is=self.content(w), w_full=self.full(w), w_holder=self.node(g.holder(w)),
                epoch=self.value(g.epoch(w)), expected=self.write(g.expect(w)), sent=self.seconds(g.sent_at(w)),
                landed="" if self.true(s.landed(w)) else ", though it has not landed")
        if label == "claim_cold":
            words["stamp_age"] = self.seconds(real - g.stamp(seen))
        if label == "standby_read":
            late = g.has("SilenceFromSending") or g.has("ClockReadAfterAnswer")
            words["asked"] = f" (and counts from {self.seconds(real)}, when it sent this read)" * late
        words["clocks"] = "clocks: " + ", ".join(f"{self.node(m)} {self.seconds(t.clock(m))}" for m in g.nodes)
        return f"{self.seconds(t.now):>6s}  " + TELL[label].format_map(words)

    def end(self, s, goal):
        for n in self.g.nodes:
            if self.true(s.runs(n)):
                acts = "acts" if self.true(s.acts(n)) else "has work that runs but does not act"
                yield (f"{self.node(n)} {acts} in epoch {self.value(s.led_epoch(n))}: its clock shows "
                       f"{self.seconds(s.clock(n))}, its deadline is {self.seconds(s.deadline(n))}")
        yield f"on the seat: {self.full(s.cur)}"
        if goal:
            yield f"broken: {goal}"


def run(broken, script, want, plain=True):
    """Looks for a run of these steps that breaks the goal `want`, or, if `want` is a function, that ends so. Returns z3's answer
    and the story. Times are tenths of a second; the lease is that of Config::default; clocks run at 0.9 to 1.1.
    plain: reads show the current record, claims raise the epoch by one at most, and a tick takes a second at least."""
    script = script.split()
    g = World(broken, nodes=2, writes=1 + sum(token.split(".")[-1] in SENDS for token in script))
    states, steps = [State.fresh(g, f"{len(script)}_{i}") for i in range(len(script) + 1)], transitions(g)
    times = [s.now for s in states]
    hold, expiry, slow, fast = map(RealVal, ("5", "7.5", "0.9", "1.1"))
    if g.has("ClocksWithinDrift"):
        slow, fast = RealVal("0.5"), RealVal("2")
    solver = z3.Solver()

    def tenths(term):
        return 10 * term == z3.ToReal(z3.FreshInt("tenths"))

    solver.add(*states[0].initial(), g.tags(), times[0] == 0, g.sent_at(g.w0) == 0, g.landed_at(g.w0) == 0, g.MARGIN == 30)
    solver.add(*map(tenths, times), *[tenths(g.stamp(w)) for w in g.writes])
    for n in g.nodes:
        solver.add(states[0].ren(n) == 0, states[0].since(n) == 0, g.C(n, times[0]) == 0)
        solver.add(g.HOLD(n) == hold, g.H(n) == hold / slow)
        solver.add(*[And(g.EXPIRY(m, n) == expiry, g.same_id(m, n)) for m in g.nodes])
        for a, b in zip(times, times[1:]):
            passed = g.C(n, b) - g.C(n, a)
            solver.add(slow * (b - a) <= passed, passed <= fast * (b - a), tenths(passed))
    taken, unsent = [], iter(g.writes[1:])
    for i, (s, t, token) in enumerate(zip(states, states[1:], script)):
        who, _, label = token.rpartition(".")
        if label not in steps:
            return "no such step", []
        sorts, step = steps[label]
        parameters = constants(f"{label}{i}", sorts)
        guard, after = step(s, *parameters)
        solver.add(guard, t.equals(after))
        write = next((p for p in parameters if p.sort() == g.Write), None)
        if who:
            solver.add(parameters[0] == g.nodes["ab".index(who)])
        if label in SENDS:
            solver.add(write == next(unsent))
        if label == "standby_read":
            solver.add(Or([parameters[2] == moment for moment in times[: i + 1]]))
        if label == "claim_cold":
            solver.add(tenths(parameters[2]))
        if plain and label.endswith("read"):
            solver.add(write == s.cur)
        if plain and label.startswith("claim"):
            solver.add(g.epoch(write) <= g.epoch(g.expect(write)) + 1)
        if plain and label == "tick":
            solver.add(t.now >= s.now + 1)
        taken.append((label, parameters, s, t))
    goal = None
    if callable(want):
        solver.add(want(g, states[-1]))
    else:
        label, parameters, s, t = taken[-1]
        found = {name: body(s, t, *parameters) for name, body in step_goals(g, label).items()}
        found |= {name: g.every(sorts, lambda *xs, body=body: body(t, *xs)) for name, (sorts, body) in goals(g).items()}
        goal, = [name for name in found if name.split()[0] == want]
        solver.add(Not(found[goal]))
    answer = str(solver.check())
    if answer != "sat":
        return answer, []
    story = Story(g, solver.model())
    lines = [f"{i:2d}. {story.step(*step)}" for i, step in enumerate(taken, 1)]
    return answer, lines + ["=>  " + line for line in story.end(states[-1], goal)]


# ----------------------------------------------------------------------------------------------------------------------
# Commands. Each returns what it found, with "ok".


TEXT, VERBOSE = True, False


def say(line=""):
    if TEXT:
        print(line, flush=True)


def detail(line):
    if VERBOSE:
        print(line, file=sys.stdout if TEXT else sys.stderr, flush=True)


def command_proof(solver="z3"):
    began, groups = time.time(), {}
    results = prove(itertools.chain(lemmas(), obligations(World())), solver)
    for name, proved, took in results:
        groups.setdefault(name.split(":")[0], []).append((proved, took * 1000))
    for group, entries in groups.items():
        (proved, took), slowest = map(sum, zip(*entries)), max(ms for _, ms in entries)
        say(f"  {group:24s} {proved:3d} of {len(entries):3d} proved {took:7.0f} ms, slowest {slowest:5.0f} ms")
    failures, took = lost(results), time.time() - began
    for name in failures:
        say(f"  not proved: {name}")
    proved = len(results) - len(failures)
    say(f"{len(results)} obligations, {proved} proved by {solver} in {took:.1f} s")
    return dict(ok=not failures, solver=solver, obligations=len(results), proved=proved, not_proved=failures, seconds=took)


def harm(name, change, title, stories):
    """What one change does: the obligations it loses, and the runs that show the harm."""
    began = time.time()
    out = dict(name=name, about=change.about, not_proved=lost(prove(obligations(World([name])))), runs=[])
    say(f"{title}: {change.about}")
    say(f"  {len(out['not_proved'])} not proved: {'; '.join(out['not_proved'][:3])}{'; ...' * (len(out['not_proved']) > 3)}")
    for goal, script in change.runs.items():
        answer, story = run([name], script, goal)
        unbroken, _ = run([], script, goal, plain=False)
        good = answer == "sat" and unbroken in ("unsat", "no such step")
        out["runs"].append(dict(goal=goal, steps=len(script.split()), found=answer, unbroken=unbroken, ok=good, story=story))
        say(f"  {goal} is {'' if answer == 'sat' else 'NOT '}broken in {len(script.split())} steps; "
            f"without this change they {'do not break it' if good else f'are {unbroken}'}")
        for line in story if stories else ():
            say("    " + line)
    good = bool(out["not_proved"] and out["runs"]) and all(found["ok"] for found in out["runs"])
    return out | dict(ok=good, seconds=time.time() - began)


def summary(began, entries, words):
    bad = [entry["name"] for entry in entries if not entry["ok"]]
    took = time.time() - began
    say(f"{words}, {len(entries) - len(bad)} as they should be, in {took:.1f} s{': look at ' * bool(bad)}{', '.join(bad)}")
    return dict(ok=not bad, seconds=took)


def command_mutants(only=()):
    began = time.time()
    prove(obligations(World()))  # so that a mutant costs only what it changes
    found = [harm(name, change, name, True) | dict(in_code=name in RUST_MUTANTS)
             for name, change in MUTANTS.items() if not only or name in only]
    return dict(mutants=found) | summary(began, found, f"{len(found)} mutant" + "s" * (len(found) != 1))


def goals_without(assumption):
    """The goals that are lost without an assumption. Clauses that are not kept are dropped, until those that are left are kept."""
    g, drop = World([assumption]), set()
    while True:
        missed = {name.split(": ", 1)[1] for name in lost(prove(obligations(g, drop)))}
        failed = missed & (set(invariant(g)) - drop)
        if not failed:
            return sorted({name.split()[0] for name in missed})
        drop |= failed


def command_needed():
    began, clauses = time.time(), []
    prove(obligations(World()))
    for name in invariant(World()):
        missed = lost(prove(obligations(World(), drop=[name]), enough=1))
        say(f"without {name}\n  " + (f"not proved: {missed[0]}" if missed else "EVERYTHING IS PROVED"))
        clauses.append(dict(name=name, not_proved=missed, ok=bool(missed)))
    assumptions = []
    for number, (name, change) in enumerate(ASSUMPTIONS.items(), 1):
        found, goals_lost = harm(name, change, f"without A{number} {name}", VERBOSE), goals_without(name)
        say(f"  goals lost: {', '.join(goals_lost)}")
        assumptions.append(found | dict(goals_lost=goals_lost))
    return dict(clauses=clauses, assumptions=assumptions) | summary(
        began, clauses + assumptions, f"{len(clauses)} clauses and {len(assumptions)} assumptions dropped in turn")


def command_slack():
    began, found = time.time(), []
    for names in [[name] for name in SLACK] + [list(SLACK)]:
        results = prove(obligations(World(names)))
        label, about, missed = names[0], SLACK[names[0]].about, lost(results)
        if len(names) > 1:
            label, about = "AllAtOnce", "All of these at once."
        say(f"{label}: {len(results) - len(missed)} of {len(results)} proved. {about}")
        for name in missed:
            say(f"  not proved: {name}")
        found.append(dict(name=label, about=about, obligations=len(results), not_proved=missed, ok=not missed))
    say("Not in the model at all, so that the proof cannot rest on it:")
    for name, why in ABSENT.items():
        say(f"  {name}: {why}")
    return dict(slack=found, absent=ABSENT) | summary(began, found, f"{len(found)} weaker models")


REACHABLE = {
    "failover: the leader crashes, its record expires, another takes over": UP + "b.standby_read a.crash tick " + CLAIM,
    "a renewal lands after its sender crashed; another takes over": UP + "a.renew a.crash land b.standby_read tick " + CLAIM,
    "handover": UP + STOPPED + "a.vacate land a.lose " + FREE,
    "marked from outside, then handed over": UP + "mark land a.leader_read " + STOPPED + "a.vacate land " + FREE,
    "a renewal without an answer is read back": UP + "a.renew land a.leader_read a.renewed",
    "work stops and starts again in the same tenure": UP + "a.work_ends a.stopped a.renew land a.renewed a.recover",
    "work that does not stop: its record is left to expire": UP + "a.lose a.retire_own_record a.rest " + SILENT,
    "work that stops late: its record is vacated": UP + "a.lose a.work_ends a.stopped a.vacate_own_record land " + FREE,
    "a claim that landed late is vacated, then the node claims again":
        "a.standby_read a.claim_free tick land forget a.standby_read a.vacate_own_record land a.rest " + UP,
    "the seat is unreadable for a while": UP + "a.unreadable a.leader_read a.renew land a.renewed",
    "cold start": "a.standby_read a.claim_free land a.crash tick b.standby_read b.claim_cold land b.lead",
}


def command_reachable():
    began, found, taken = time.time(), [], set()
    for name, script in REACHABLE.items():
        answer, story = run([], script, lambda g, s: Or([s.acts(n) for n in g.nodes]))
        taken |= {token.split(".")[-1] for token in script.split() if answer == "sat"}
        say(f"{'found' if answer == 'sat' else 'NOT FOUND'}: {name}")
        for line in story if VERBOSE else ():
            say("    " + line)
        found.append(dict(name=name, ok=answer == "sat", story=story))
    found += [dict(name=f"transition {name}", ok=False, story=[]) for name in sorted(set(transitions(World())) - taken)]
    return dict(runs=found) | summary(began, found, f"{len(found)} runs, which take every transition")


def main():
    global TEXT, VERBOSE
    parser = argparse.ArgumentParser(description="The proof of the seat protocol.")
    parser.add_argument("--solver", choices=["z3", "cvc5"], default="z3", help="which solver proves it (default: z3)")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="break the protocol in every way listed, or only in these")
    parser.add_argument("--needed", action="store_true", help="drop each clause and each assumption in turn")
    parser.add_argument("--slack", action="store_true", help="weaken what safety does not rest on")
    parser.add_argument("--reachable", action="store_true", help="show that every transition can happen")
    parser.add_argument("--all", action="store_true", help="all of it, with z3")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("-v", action="store_true", help="every obligation, and every story")
    options = parser.parse_args()
    TEXT, VERBOSE = not options.json, options.v
    unknown = set(options.mutants or ()) - set(MUTANTS)
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    commands = {"mutants": lambda: command_mutants(options.mutants or ()), "needed": command_needed, "slack": command_slack,
                "reachable": command_reachable}
    chosen = [name for name in commands if options.all or getattr(options, name) not in (None, False)]
    if options.solver != "z3" and chosen:
        parser.error("--solver is for the plain proof")
    if options.solver == "cvc5":
        try:
            import cvc5  # noqa: F401
        except ImportError:
            print("--solver cvc5 needs the Python package cvc5: pip install cvc5", file=sys.stderr)
            return 3
    out = {"proof": command_proof(options.solver)} if options.all or not chosen else {}
    out |= {name: commands[name]() for name in chosen}
    good = all(part["ok"] for part in out.values())
    if options.json:
        print(json.dumps(dict(ok=good, z3=z3.get_version_string(), **out)))
    elif len(out) > 1:
        say("everything is as it should be" if good else "NOT EVERYTHING IS AS IT SHOULD BE")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
