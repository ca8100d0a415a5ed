//! Commands on a group whose API server fails at random.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use proptest::{collection::vec, prelude::*};

use super::steps::text::{Failed, Version};
use super::*;
use crate::steps::{
    Call, CallerId, Decrease, Deletion, Details, Effect, Failure, MarkCall, MarkOutcome, NotDone, Now, Outcome,
    Replaceable, Resize, Steps, UnloggedMachines, View,
};

/// The maximum number of calls that a command may make in these tests.
const MOST_CALLS: usize = 400;

/// The fate of one call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The call succeeds.
    None,
    /// The call isn't executed, and fails like this.
    Fails(Failure),
    /// The call is executed, and its response is lost.
    AnswerLost,
}

/// A group and its Machines, with an API server whose calls fail as scripted.
struct World {
    group: RefCell<Version>,
    /// The life of each Machine, and true if it has a Node.
    machines: RefCell<BTreeMap<String, (Life, bool)>>,
    /// The tickets of the marks.
    marks: RefCell<BTreeMap<String, Ticket>>,
    writer: Cell<Option<u32>>,
    faults: RefCell<VecDeque<Fault>>,
    drawn: Cell<u32>,
    calls: RefCell<Vec<&'static str>>,
    /// The callers that have left.
    left: RefCell<BTreeSet<CallerId>>,
    /// The answers of each caller.
    answers: RefCell<BTreeMap<CallerId, Vec<Result<(), String>>>>,
}

impl World {
    /// Creates Machines: `a` is alive with a Node, `a-` without one. The size is their number plus `missing`.
    fn new(machines: &[&str], missing: i32) -> Self {
        let machine = |text: &&str| (text.trim_end_matches('-').to_owned(), (Life::Alive, !text.ends_with('-')));
        let machines: BTreeMap<_, _> = machines.iter().map(machine).collect();
        let replicas = i32::try_from(machines.len()).unwrap_or_default() + missing;
        Self {
            group: RefCell::new(Version { generation: 1, replicas, log: DeletionLog::default() }),
            machines: RefCell::new(machines),
            marks: RefCell::default(),
            writer: Cell::default(),
            faults: RefCell::default(),
            drawn: Cell::default(),
            calls: RefCell::default(),
            left: RefCell::default(),
            answers: RefCell::default(),
        }
    }

    fn with_faults(self, faults: impl IntoIterator<Item = Fault>) -> Self {
        self.faults.borrow_mut().extend(faults);
        self
    }

    fn draw(&self) -> u32 {
        self.drawn.set(self.drawn.get() + 1);
        self.drawn.get()
    }

    /// Returns the life of a Machine, and true if it has a Node.
    fn machine(&self, uid: &str) -> (Life, bool) {
        self.machines.borrow().get(uid).copied().unwrap_or((Life::Gone, false))
    }

    fn listed(&self) -> GroupMachines {
        let machines = self.machines.borrow();
        let alive = machines.iter().filter(|(_, (life, _))| *life == Life::Alive).map(|(uid, _)| uid.clone());
        GroupMachines { alive: alive.collect(), ..GroupMachines::default() }
    }

    /// Writes the group if it is unchanged since `seen`.
    fn write(
        &self,
        seen: &Version,
        to: Option<i32>,
        log: Option<DeletionLog>,
        tests_log: bool,
    ) -> Result<Version, Failed> {
        let mut group = self.group.borrow_mut();
        let is_seen = group.replicas == seen.replicas && (!tests_log || *group == *seen);
        if !is_seen {
            return Err(Failed(Failure::Rejected));
        }
        if let Some(to) = to {
            group.replicas = to;
            group.generation += 1;
        }
        if let Some(log) = log {
            group.log = log;
        }
        Ok(group.clone())
    }

    /// Makes a call, which fails as scripted.
    fn perform(&self, call: Call<Text>) -> Outcome<Text> {
        let fault = match &call {
            // A pause doesn't fail.
            Call::Pause(..) => Fault::None,
            _ => self.faults.borrow_mut().pop_front().unwrap_or(Fault::None),
        };
        let failure = match fault {
            Fault::None => None,
            Fault::Fails(failure) => Some(Failed(failure)),
            Fault::AnswerLost => Some(Failed(Failure::Unknown)),
        };
        let is_done = !matches!(fault, Fault::Fails(_));
        let written = |write: &dyn Fn() -> Result<Version, Failed>| {
            let written = if is_done { write() } else { Err(Failed(Failure::Unknown)) };
            Outcome::Written(failure.map_or(written, Err))
        };
        let name = match call {
            Call::ReadGroup(_) => "read group",
            Call::ReadSize(_) => "read size",
            Call::List(_) => "list",
            Call::WriteLog { .. } => "log",
            Call::Lower { .. } => "lower",
            Call::Resize { .. } => "resize",
            Call::Mark(_, MarkCall::Set(_)) => "mark",
            Call::Read(_) | Call::ReadDetails(_) | Call::ReadVersion(_) | Call::Mark(..) => "read",
            Call::Delete { .. } => "delete",
            Call::Unmark { .. } => "unmark",
            Call::WriteReplaced { .. } => "write replaced",
            Call::Pause(..) => "pause",
        };
        if name != "pause" {
            self.calls.borrow_mut().push(name);
        }
        match call {
            Call::ReadGroup(_) => Outcome::Group(failure.map_or_else(|| Ok(self.group.borrow().clone()), Err)),
            Call::ReadSize(writer) => {
                let sized_by = match self.writer.get() {
                    Some(last) if last == writer => SizedBy::This,
                    Some(_) => SizedBy::Another,
                    None => SizedBy::Nobody,
                };
                Outcome::Size(failure.map_or_else(|| Ok((self.group.borrow().clone(), sized_by)), Err))
            }
            Call::Read(named) => {
                let life = failure.map_or_else(|| Ok(self.machine(&named.uid).0), Err);
                Outcome::Life(named.uid, life)
            }
            Call::ReadDetails(named) => {
                let (life, has_node) = self.machine(&named.uid);
                let version = (life == Life::Alive).then_some(1);
                let whole = Details { life, has_joined: has_node, version, ticket: None };
                Outcome::Details(named.uid, failure.map_or(Ok(whole), Err))
            }
            Call::ReadVersion(entry) => Outcome::Version(entry, failure.is_none().then_some(1)),
            Call::List(_) => Outcome::Listed(failure.map_or_else(|| Ok(self.listed()), Err)),
            Call::WriteLog { seen, log } => written(&|| self.write(&seen, None, Some(log.clone()), true)),
            Call::Lower { seen, lowering } => {
                let to = (!lowering.names.is_empty()).then_some(lowering.to);
                written(&|| self.write(&seen, to, Some(lowering.log.clone()), true))
            }
            Call::Resize { seen, to, writer, counted } => written(&|| {
                let written = self.write(&seen, Some(to), None, counted)?;
                self.writer.set(Some(writer));
                Ok(written)
            }),
            Call::Mark(entry, call) => {
                let outcome = self.mark(&entry, &call, is_done, failure);
                Outcome::Mark(entry, outcome)
            }
            Call::Delete { machine, .. } => {
                let is_there = self.machine(&machine.uid).0 != Life::Gone;
                Outcome::Deleted(machine.uid, failure.map_or(Ok(is_there), Err))
            }
            Call::Unmark { name, .. } => {
                if is_done {
                    self.marks.borrow_mut().remove(&name);
                }
                Outcome::Unmarked(name, failure.map_or(Ok(()), Err))
            }
            Call::WriteReplaced { .. } => Outcome::WrittenReplaced(failure.map_or(Ok(()), Err)),
            Call::Pause(row, failure) => {
                // As often as all calls of a test can fail.
                Outcome::Paused(row, failure != Failed(Failure::Final) && self.calls.borrow().len() < MOST_CALLS / 4)
            }
        }
    }

    /// Makes a call for a mark.
    fn mark(&self, entry: &Entry, call: &MarkCall<Text>, is_done: bool, failure: Option<Failed>) -> MarkOutcome<Text> {
        let (life, has_joined) = self.machine(&entry.uid);
        match call {
            MarkCall::ReadOwner => MarkOutcome::IsOfGroup(failure.map_or(Ok(Some(true)), Err)),
            MarkCall::Read => MarkOutcome::Life(failure.map_or(Ok(life), Err)),
            MarkCall::ReadDetails => {
                let version = (life == Life::Alive).then_some(1);
                let ticket = self.marks.borrow().get(&entry.uid).cloned();
                MarkOutcome::Details(failure.map_or(Ok(Details { life, has_joined, version, ticket }), Err))
            }
            MarkCall::ReadGroup => MarkOutcome::Group(failure.map_or_else(|| Ok(self.group.borrow().clone()), Err)),
            MarkCall::Set(_) => {
                if is_done && life != Life::Gone {
                    self.marks.borrow_mut().insert(entry.uid.clone(), entry.ticket.clone());
                }
                MarkOutcome::Set(failure.map_or(Ok(life), Err))
            }
        }
    }

    /// Carries a command out to its end.
    fn run(&self, steps: &mut impl Steps<Text>) {
        let mut waiting = VecDeque::new();
        loop {
            waiting.extend(steps.next(self));
            self.take(steps.effects());
            let Some(call) = waiting.pop_front() else { return };
            assert!(self.calls.borrow().len() < MOST_CALLS, "it comes to no end: {:?}", self.calls.borrow());
            let outcome = self.perform(call);
            steps.took(outcome);
            self.take(steps.effects());
        }
    }

    fn take(&self, effects: Vec<Effect<Text>>) {
        for effect in effects {
            match effect {
                Effect::Answer(caller, end) => {
                    let end = end.map_err(|why| format!("{why:?}"));
                    self.answers.borrow_mut().entry(caller).or_default().push(end);
                }
                Effect::Deferred(caller) => {
                    self.answers.borrow_mut().entry(caller).or_default().push(Err("put off".to_owned()));
                }
                _ => {}
            }
        }
    }

    /// Deletes these Machines, one request each.
    fn delete(&self, requests: &[&[&str]]) -> Deletion<Text> {
        let mut deletion = Deletion::new(RULE, requests_of(0, requests));
        self.run(&mut deletion);
        assert!(deletion.has_ended(), "{deletion:?}");
        deletion
    }

    fn answer(&self, caller: CallerId) -> Result<(), String> {
        let answers = self.answers.borrow();
        let [answer] = &answers[&caller][..] else { panic!("{caller} has {:?}", answers[&caller]) };
        answer.clone()
    }

    /// Returns the log in the format of [`log`].
    fn log(&self) -> Vec<String> {
        let text = |entry: &Entry| {
            let soft = if entry.soft { "~" } else { "" };
            let lowered = if entry.phase == Phase::Lowered { "!" } else { "" };
            format!("{}{soft}{lowered}", entry.name)
        };
        self.group.borrow().log.entries().iter().map(text).collect()
    }
}

/// Parses the requests of consecutive callers: `a` is a Machine, `a-` one that never joined, `+` a placeholder.
fn requests_of(first: CallerId, requests: &[&[&str]]) -> Vec<(CallerId, Request, usize)> {
    let request = |names: &&[&str]| {
        let machine = |name: &&&str| **name != "+";
        let never_joined =
            |name: &&str| Named { never_joined: name.ends_with('-'), ..named(name.trim_end_matches('-')) };
        let machines: Vec<_> = names.iter().filter(machine).map(never_joined).collect();
        Request { replicas: names.len() - machines.len(), machines, instances: 0 }
    };
    requests.iter().enumerate().map(|(number, names)| (first + number, request(names), 0)).collect()
}

impl Now<Text> for World {
    fn view(&self) -> Result<View<Text>, &'static str> {
        Ok(View { version: self.group.borrow().clone(), bounds: BOUNDS, rollout: None })
    }

    fn lives(&self, _: &Version, named: &[Named]) -> Vec<Option<Life>> {
        named.iter().map(|named| Some(self.machine(&named.uid).0)).collect()
    }

    fn has_machine(&self, named: &Named) -> bool {
        self.machines.borrow().contains_key(&named.uid)
    }

    fn is_stranger(&self, _: &Entry) -> bool {
        false
    }

    fn knows_group_of(&self, _: &Entry) -> bool {
        true
    }

    fn is_marked_by_another(&self, _: &Entry) -> bool {
        false
    }

    fn has_node(&self, _: &Entry) -> bool {
        false
    }

    fn unlogged_machines(&self, log: &DeletionLog) -> UnloggedMachines<Text> {
        let machines = self.machines.borrow();
        let there = machines.iter().filter(|(uid, (life, _))| *life == Life::Alive && log.get(uid).is_none());
        let (joined, waiting): (Vec<_>, Vec<_>) = there.partition(|(_, (_, has_node))| *has_node);
        let never_joined = |(uid, _): &(&String, _)| Named { never_joined: true, ..named(uid) };
        UnloggedMachines {
            with_node: i32::try_from(joined.len()).unwrap_or_default(),
            waiting: waiting.iter().map(never_joined).collect(),
        }
    }

    fn followed<P: Policy>(&self, _: Rule<P>) -> Option<(Version, Followed<Text, P>)> {
        None
    }

    fn replaceable(&self, _: &Request, _: &DeletionLog) -> Result<Replaceable<Text>, &'static str> {
        Err("nothing is replaced here")
    }

    fn counts_deleting(&self) -> bool {
        true
    }

    fn has_left(&self, caller: CallerId) -> bool {
        self.left.borrow().contains(&caller)
    }

    fn ticket(&self) -> Ticket {
        format!("t{}", self.draw())
    }

    fn writer(&self) -> u32 {
        self.draw()
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    let failure = prop_oneof![
        Just(Failure::Rejected),
        Just(Failure::Conflict),
        Just(Failure::Unknown),
        Just(Failure::NotNow),
        Just(Failure::Final),
    ];
    prop_oneof![4 => Just(Fault::None), 2 => failure.prop_map(Fault::Fails), 1 => Just(Fault::AnswerLost)]
}

proptest! {
    #[test]
    fn whatever_fails_each_caller_is_answered_once_and_the_size_comes_down_once_for_each_entry(
        faults in vec(fault(), 0..25),
    ) {
        let world = World::new(&["a", "b", "c", "d-", "e"], 1).with_faults(faults);
        world.delete(&[&["a"], &["b", "c"], &["d-"], &["+"]]);
        let size = world.group.borrow().replicas;
        let entries = world.log();
        let lowered = i32::try_from(entries.iter().filter(|entry| entry.ends_with('!')).count()).unwrap();
        let placeholder = i32::from(size < 6 - lowered);
        prop_assert_eq!(size, 6 - lowered - placeholder, "{:?}", &entries);
        let marks = world.marks.borrow();
        for (caller, names) in [(0, &["a"][..]), (1, &["b", "c"]), (2, &["d"])] {
            let is_lowered = |name: &&str| entries.contains(&format!("{name}!"));
            match world.answer(caller) {
                Ok(()) => prop_assert!(names.iter().all(is_lowered), "{caller} was answered OK: {entries:?}"),
                // Refused for good: nothing of it is left.
                Err(why) if !["Pending", "MaybeLogged", "InPart", "NotTakenBack", "put off"].iter().any(|word| why.contains(word)) => {
                    prop_assert!(!names.iter().any(|name| entries.iter().any(|entry| entry.starts_with(name))), "{why}: {entries:?}");
                }
                Err(_) => {}
            }
            for name in names.iter().filter(|name| is_lowered(name)) {
                prop_assert!(marks.contains_key(*name), "{name} isn't marked: {entries:?}");
            }
        }
        if world.answer(3).is_ok() {
            prop_assert_eq!(placeholder, 1);
        }
    }

    #[test]
    fn whatever_fails_a_smaller_target_size_takes_no_machine_with_a_node(faults in vec(fault(), 0..25)) {
        let world = World::new(&["a", "b", "c-", "d-"], 1).with_faults(faults);
        let mut decrease = Decrease::new(RULE, world.group.borrow().clone(), -4, BOUNDS, 0);
        world.run(&mut decrease);
        prop_assert!(decrease.end().is_some());
        let (size, entries) = (world.group.borrow().replicas, world.log());
        prop_assert!(entries.iter().all(|entry| entry.starts_with(['c', 'd'])), "{entries:?}");
        let lowered = i32::try_from(entries.iter().filter(|entry| entry.ends_with('!')).count()).unwrap();
        prop_assert!((4..=5).contains(&(size + lowered)), "{size}: {entries:?}");
    }

    #[test]
    fn whatever_fails_an_increase_that_is_answered_ok_was_done_once(faults in vec(fault(), 0..12)) {
        let world = World::new(&["a"], 0).with_faults(faults);
        let mut increase = Resize::increase(RULE, world.group.borrow().clone(), 2, BOUNDS, Some(0));
        world.run(&mut increase);
        let (end, size) = (increase.end().cloned(), world.group.borrow().replicas);
        match end {
            Some(Ok(true)) => prop_assert_eq!(size, 3),
            Some(Err(NotDone::SizeUnread { .. } | NotDone::SizeUnknown { .. })) => prop_assert!(size == 1 || size == 3),
            Some(Err(_)) => prop_assert_eq!(size, 1),
            Some(Ok(false)) | None => prop_assert!(false, "{increase:?}"),
        }
    }
}
