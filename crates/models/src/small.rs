//! The delete rule with the model's identities, which are the slots of Machines. It converts the world's state for the
//! rule, and the rule's writes for the world. It must never decide anything.

use std::{
    convert::Infallible,
    hash::{BuildHasherDefault, Hasher},
    time::Duration,
};

use delete_rule::{
    Entry, LEFT_TO_PROVIDER, Named, Source, Spec, Types, Version,
    steps::{self, Calls, FailedCall, Failure, Unmarked},
};

use crate::world::{self, Memory, Phase, Set, World};

/// The model's identities.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Small;

impl Types for Small {
    type Uid = u8;
    type Name = u8;
    /// The number of an acceptance: in the log of a world by the world's numbering, in a command by its own.
    type Ticket = u8;
    type Time = u8;
    type Hasher = BuildHasherDefault<ByNumber>;
    type LogError = Infallible;

    /// Two moments differ if a provider has had its time between them.
    fn between(from: u8, to: u8) -> Duration {
        if from < to { LEFT_TO_PROVIDER } else { Duration::ZERO }
    }

    fn check(_: &Log, _: usize) -> Result<(), Infallible> {
        Ok(())
    }
}

impl Calls for Small {
    type Group = View;
    /// The number of a Machine's version, by a command's own numbering.
    type Version = u8;
    type Writer = u8;
    type Failed = Failed;
    type Unreadable = Infallible;
    type NotScalable = Infallible;
    type Rollout = Infallible;
    type Note = Infallible;
    type Unread = Infallible;

    fn unmarked(_: &u8, why: Unmarked<Self>) -> Failed {
        match why {
            Unmarked::NotInLog => Failed(Failure::Conflict),
            Unmarked::NotOfGroup => Failed(Failure::Unknown),
            Unmarked::Unreadable(error) => match error {},
        }
    }
}

/// A version of the group as a command knows it, with the command's own numbering of generations and tickets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct View {
    pub(crate) generation: u8,
    pub(crate) replicas: i8,
    pub(crate) log: Log,
}

impl steps::Group<Small> for View {
    fn spec(&self) -> Spec<'_, u8> {
        Spec { uid: &u8::MAX, generation: self.generation.into(), replicas: self.replicas.into() }
    }

    fn log(&self) -> Result<Log, Infallible> {
        Ok(self.log.clone())
    }

    fn is_unchanged_since(&self, other: &Self) -> bool {
        (self.generation, &self.log) == (other.generation, &other.log)
    }
}

/// A call that has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed(pub(crate) Failure);

impl FailedCall for Failed {
    fn failure(&self) -> Failure {
        self.0
    }
}

/// A hasher that spreads a small number over all bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.0 = (self.0 + u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type Log = delete_rule::Log<Small>;
pub(crate) type Uids = delete_rule::Set<Small>;

/// A Machine as the finisher's cache shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Member {
    uid: u8,
    is_deleting: bool,
    mark: u8,
}

impl delete_rule::Member<Small> for Member {
    fn uid(&self) -> &u8 {
        &self.uid
    }

    fn is_deleting(&self) -> bool {
        self.is_deleting
    }

    fn ticket(&self) -> Option<u8> {
        (self.mark != 0).then_some(self.mark)
    }
}

impl Member {
    pub(crate) fn machine(self) -> usize {
        self.uid.into()
    }
}

/// A MachineSet as a copy's cache shows it.
pub(crate) struct Shown {
    pub(crate) replicas: i32,
    pub(crate) desired: i32,
    pub(crate) status: i32,
    pub(crate) generation: i64,
    pub(crate) seen_generation: i64,
    pub(crate) log: Log,
}

impl Source<Small> for Shown {
    fn replicas(&self) -> Option<i32> {
        Some(self.replicas)
    }

    fn desired_replicas(&self) -> Option<i32> {
        Some(self.desired)
    }

    fn status_replicas(&self) -> i32 {
        self.status
    }

    fn generation(&self) -> i64 {
        self.generation
    }

    fn seen_generation(&self) -> i64 {
        self.seen_generation
    }

    fn log(&self) -> Option<&Log> {
        Some(&self.log)
    }
}

/// Returns the uid of a Machine.
pub(crate) fn uid(machine: usize) -> u8 {
    u8::try_from(machine).unwrap_or(u8::MAX)
}

pub(crate) fn named(machine: usize, never_joined: Set) -> Named<Small> {
    Named { name: uid(machine), uid: uid(machine), never_joined: never_joined.has(machine) }
}

/// Returns the entry of a Machine, converted from the log of a world.
pub(crate) fn entry(machine: usize, entry: world::Entry) -> Option<Entry<Small>> {
    let phase = match entry.phase {
        Phase::None => return None,
        Phase::Wanted => delete_rule::Phase::Wanted,
        Phase::Lowered => delete_rule::Phase::Lowered,
    };
    Some(Entry {
        name: uid(machine),
        uid: uid(machine),
        ticket: entry.ticket,
        phase,
        soft: entry.is_soft,
        counted: entry.is_counted,
        pending: entry.never_joined && !entry.is_soft,
    })
}

pub(crate) fn uids(set: Set) -> Uids {
    set.iter().map(uid).collect()
}

pub(crate) fn set<'a>(uids: impl IntoIterator<Item = &'a u8>) -> Set {
    uids.into_iter().fold(Set(0), |set, uid| set | Set::one(usize::from(*uid)))
}

impl World {
    /// Returns the log in the rule's form.
    pub(crate) fn rule_log(&self) -> Log {
        let entries = self.log.iter().enumerate().filter_map(|(machine, logged)| entry(machine, *logged));
        Log::default().with(entries)
    }

    /// Returns the Machines that exist, as a cache shows them.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        let machines = self.machines.iter().enumerate().filter(|(_, machine)| machine.exists());
        machines.map(|(index, machine)| Member {
            uid: uid(index),
            is_deleting: machine.life == world::Life::Deleting,
            mark: machine.mark,
        })
    }
}

impl Memory {
    /// Returns the command's own number of a ticket, which is assigned if the ticket is new to it.
    pub(crate) fn knows(&mut self, ticket: u8) -> u8 {
        let place = self.tickets.all().iter().position(|known| *known == ticket);
        let place = place.unwrap_or_else(|| {
            let pushed_out = self.tickets.push(ticket, usize::MAX);
            assert_eq!(pushed_out, 0, "a command has space for all tickets that it sees");
            self.tickets.all().len() - 1
        });
        uid(place + 1)
    }

    /// Returns the world's number of a ticket that the command knows.
    pub(crate) fn ticket(&self, own: u8) -> u8 {
        usize::from(own).checked_sub(1).and_then(|place| self.tickets.all().get(place)).copied().unwrap_or_default()
    }

    /// Returns a log that the command writes in the world's form.
    pub(crate) fn log(&self, log: &Log) -> [world::Entry; world::SLOTS] {
        let mut entries = [world::Entry::default(); world::SLOTS];
        for entry in log.entries() {
            let phase = match entry.phase {
                delete_rule::Phase::Wanted => Phase::Wanted,
                delete_rule::Phase::Lowered => Phase::Lowered,
            };
            entries[usize::from(entry.uid)] = world::Entry {
                phase,
                ticket: self.ticket(entry.ticket),
                is_soft: entry.soft,
                never_joined: entry.gives_up(),
                is_counted: entry.counted,
            };
        }
        entries
    }
}

/// Returns a version of the group's object that has this log.
pub(crate) fn version(number: u64, generation: i64, log: &Log) -> Version<'_, Small> {
    Version { uid: &u8::MAX, generation, number: Some(number), log: delete_rule::LogState::Read(log) }
}
