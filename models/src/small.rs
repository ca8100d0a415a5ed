//! The rule of deletion with the model's identities: Machines by their slots. What the world has is shown to the rule, and
//! what the rule decides is given back as sets. Nothing is decided here.

use std::{
    convert::Infallible,
    hash::{BuildHasherDefault, Hasher},
    time::Duration,
};

use delete_rule::{Entry, Map, Named, Source, Types, Version};

use crate::world::{self, Phase, Set, World};

/// The model's identities.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Small;

impl Types for Small {
    type Uid = u8;
    type Name = u8;
    /// The Machine, and the number of its acceptance.
    type Ticket = (u8, u8);
    type Time = u8;
    type Hasher = BuildHasherDefault<ByNumber>;
    type LogError = Infallible;

    fn between(_: u8, _: u8) -> Duration {
        Duration::ZERO
    }

    fn check(_: &Log) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Hashes a small number to one that is spread over all bits.
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
pub(crate) type Listed = delete_rule::Listed<Small>;
pub(crate) type Uids = delete_rule::Set<Small>;
pub(crate) type Tickets = Map<Small, (u8, u8)>;

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

    fn ticket(&self) -> Option<(u8, u8)> {
        (self.mark != 0).then_some((self.uid, self.mark))
    }
}

impl Member {
    pub(crate) fn machine(self) -> usize {
        self.uid.into()
    }
}

/// A MachineSet as a copy's cache shows it. Its size comes with the log that is copied to it.
pub(crate) struct Shown {
    pub(crate) replicas: i32,
    pub(crate) generation: i64,
    pub(crate) seen_generation: i64,
    pub(crate) log: Log,
}

impl Source<Small> for Shown {
    fn replicas(&self) -> Option<i32> {
        Some(self.replicas)
    }

    fn desired_replicas(&self) -> Option<i32> {
        Some(self.replicas)
    }

    fn status_replicas(&self) -> i32 {
        0
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

/// The uid of a Machine.
pub(crate) fn uid(machine: usize) -> u8 {
    u8::try_from(machine).unwrap_or(u8::MAX)
}

pub(crate) fn named(machine: usize, never_joined: Set) -> Named<Small> {
    Named { name: uid(machine), uid: uid(machine), never_joined: never_joined.has(machine) }
}

/// The entry of a Machine, as the log of a world has it.
pub(crate) fn entry(machine: usize, entry: world::Entry) -> Option<Entry<Small>> {
    let phase = match entry.phase {
        Phase::None => return None,
        Phase::Wanted => delete_rule::Phase::Wanted,
        Phase::Lowered => delete_rule::Phase::Lowered,
    };
    Some(Entry {
        name: uid(machine),
        uid: uid(machine),
        ticket: (uid(machine), entry.ticket),
        phase,
        soft: entry.is_soft,
        counted: entry.is_counted,
        pending: entry.never_joined && !entry.is_soft,
    })
}

pub(crate) fn uids(set: Set) -> Uids {
    set.iter().map(uid).collect()
}

pub(crate) fn set(uids: impl IntoIterator<Item = u8>) -> Set {
    uids.into_iter().fold(Set(0), |set, uid| set | Set::one(uid.into()))
}

pub(crate) fn count(set: Set) -> usize {
    set.0.count_ones().try_into().unwrap_or_default()
}

impl World {
    /// The log as the rule looks at it.
    pub(crate) fn rule_log(&self) -> Log {
        let entries = self.log.iter().enumerate().filter_map(|(machine, logged)| entry(machine, *logged));
        Log::default().with(entries)
    }

    /// The Machines that are there, as a cache shows them.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        let machines = self.machines.iter().enumerate().filter(|(_, machine)| machine.exists());
        machines.map(|(index, machine)| Member {
            uid: uid(index),
            is_deleting: machine.life == world::Life::Deleting,
            mark: machine.mark,
        })
    }

    /// The tickets of these Machines' entries, under which they are marked.
    pub(crate) fn tickets_of(&self, machines: Set) -> Tickets {
        machines.iter().map(|machine| (uid(machine), (uid(machine), self.log[machine].ticket))).collect()
    }
}

/// The version of a group's object that has this log.
pub(crate) fn version(number: u64, generation: i64, log: &Log) -> Version<'_, Small> {
    Version { uid: &u8::MAX, generation, number: Some(number), log: delete_rule::LogSeen::Read(log) }
}
