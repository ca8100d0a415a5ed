//! The rule of the program and that of the model, which shares no code with it, on all small inputs. Where they differ on purpose,
//! the test says so.

use models::{
    rule::{Accept, Finish as Step, Place, Reached, Rule, Seen as View},
    world::{self, Count, Places, SLOTS, Set},
};

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use super::*;
use crate::nodegroup::{Bounds, DeletionLog, LogAnnotation as _, Phase, SharedLog, deletion_log::Entry, testing};

/// The Machines of the group.
const MACHINES: usize = 3;

/// The state of a Machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Alive,
    /// It is being deleted, and its Node is there.
    Draining,
    /// It is being deleted, and has no Node.
    Hanging,
    Gone,
}

const STATES: [State; 4] = [State::Alive, State::Draining, State::Hanging, State::Gone];

/// The entry of a Machine in the log: its phase, and whether it is soft.
type Logged = Option<(Phase, bool)>;

const LOGGED: [Logged; 5] = [
    None,
    Some((Phase::Wanted, false)),
    Some((Phase::Lowered, false)),
    Some((Phase::Wanted, true)),
    Some((Phase::Lowered, true)),
];

type Group = [(State, Logged); MACHINES];

/// All groups of these Machines.
fn groups() -> impl Iterator<Item = Group> {
    let kinds = STATES.len() * LOGGED.len();
    (0..kinds.pow(3)).map(move |number| {
        [number % kinds, number / kinds % kinds, number / kinds / kinds]
            .map(|kind| (STATES[kind % STATES.len()], LOGGED[kind / STATES.len()]))
    })
}

fn named(machine: usize) -> Named {
    let name = world::name(machine);
    Named { name: name.as_str().into(), uid: name.as_str().into(), never_joined: false }
}

fn log_of(group: &Group) -> DeletionLog {
    let entries = group.iter().enumerate().filter_map(|(machine, (_, logged))| {
        let (phase, soft) = (*logged)?;
        Some(Entry { phase, ..Entry::wanted(&named(machine), &Ticket::from("old"), soft) })
    });
    DeletionLog::default().with(entries)
}

fn with(group: &Group, state: State) -> Set {
    Set::of(|machine| group.get(machine).is_some_and(|(is, _)| *is == state))
}

fn listed(group: &Group) -> Listed {
    let uids = |state| with(group, state).iter().map(|machine| named(machine).uid).collect();
    let without_node = with(group, State::Hanging).iter().map(named).collect();
    Listed { alive: uids(State::Alive), draining: uids(State::Draining), without_node, instances: None }
}

fn lives(group: &Group) -> HashMap<Uid, Life> {
    let life = |(machine, (state, _)): (usize, &(State, Logged))| {
        let life = match state {
            State::Alive => Life::Alive,
            State::Draining | State::Hanging => Life::Deleting,
            State::Gone => Life::Gone,
        };
        (named(machine).uid, life)
    };
    group.iter().enumerate().map(life).collect()
}

fn modelled_machine(state: State) -> world::Machine {
    let life = match state {
        State::Alive => world::Life::Alive,
        State::Draining | State::Hanging => world::Life::Deleting,
        State::Gone => world::Life::Gone,
    };
    world::Machine { life, has_node: matches!(state, State::Alive | State::Draining), ..world::Machine::default() }
}

fn modelled_entry(logged: Logged) -> world::Entry {
    let phase = match logged {
        None => world::Phase::None,
        Some((Phase::Wanted, _)) => world::Phase::Wanted,
        Some((Phase::Lowered, _)) => world::Phase::Lowered,
    };
    let is_soft = logged.is_some_and(|(_, soft)| soft);
    world::Entry {
        phase,
        is_soft,
        never_joined: is_soft,
        ticket: u8::from(logged.is_some()),
        ..world::Entry::default()
    }
}

/// The Machines that a log has under a ticket.
fn under(log: Option<&DeletionLog>, ticket: &Ticket) -> Set {
    let has = |machine: usize| log.and_then(|log| log.get(&named(machine).uid)).is_some_and(|it| it.ticket == *ticket);
    Set::of(|machine| machine < MACHINES && has(machine))
}

/// The outcome of a request: the Machines that it adds to the log, and the replicas that it lowers besides; `None` if it is
/// refused.
type Outcome = Option<(Set, usize)>;

/// Lets the program decide.
fn decided(group: &Group, replicas: i8, min: i8, given_up: usize, request: &Request) -> Result<Outcome, Refusal> {
    let (log, lives, listed, joined) = (log_of(group), lives(group), listed(group), HashSet::new());
    let bounds = Bounds { min: min.into(), max: 10 };
    let seen = Seen {
        log: &log,
        replicas: replicas.into(),
        bounds,
        lives: &lives,
        joined: &joined,
        listed: &listed,
        counts_deleting: true,
        given_up,
    };
    let new = Ticket::from("new");
    let mut acceptance = RULE.acceptance(seen, new.clone());
    match acceptance.accept(request) {
        Ok(accepted) => {
            let set = under(acceptance.log(), &new);
            for entry in acceptance.log().iter().flat_map(|log| log.entries()).filter(|entry| entry.ticket == new) {
                assert_eq!(entry.counted, lives[&entry.uid] == Life::Deleting, "{group:?}: {entry:?}");
            }
            Ok(Some((set, accepted.replicas)))
        }
        Err(Refusal::BelowMin(_) | Refusal::Replaced { .. }) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

#[test]
fn machines_are_accepted_as_in_the_model() {
    let (rule, mut compared) = (Rule::default(), 0);
    for group in groups().filter(|group| group.iter().all(|(state, _)| *state != State::Draining)) {
        let mut machines = [world::Machine::default(); SLOTS];
        let mut entries = [world::Entry::default(); SLOTS];
        for (machine, (state, logged)) in group.iter().enumerate() {
            (machines[machine], entries[machine]) = (modelled_machine(*state), modelled_entry(*logged));
        }
        for all in (1..1 << MACHINES).map(Set) {
            let request = Request { machines: all.iter().map(named).collect(), ..Request::default() };
            let is_soft = |machine: usize| group[machine].1.is_some_and(|(_, soft)| soft);
            for (replicas, min) in (0..=4).flat_map(|replicas| (0..=1).map(move |min| (replicas, min))) {
                let found = decided(&group, replicas, min, 0, &request);
                if all.iter().any(is_soft) {
                    assert!(matches!(found, Err(Refusal::InTheWay(_))), "{group:?} of {replicas}: {all}: {found:?}");
                    continue;
                }
                let view = View { replicas, min, log: &entries, machines: &machines };
                let expected = match rule.accept(&view, all) {
                    Accept::Nothing => Some((Set(0), 0)),
                    Accept::Log(new) => Some((new, 0)),
                    Accept::BelowMin => None,
                };
                assert_eq!(found, Ok(expected), "{group:?} of {replicas}, at least {min}: {all}");
                compared += 1;
            }
        }
    }
    assert!(compared > 50_000, "{compared}");
}

/// A placeholder of a Machine whose deletion is wanted joins it, which the model counts as one that is lowered.
#[test]
fn placeholders_are_accepted_as_in_the_model() {
    let (rule, mut compared) = (Rule::default(), 0);
    for group in groups() {
        let in_log = |is: &dyn Fn(Phase, bool) -> bool| {
            Set::of(|machine| group.get(machine).and_then(|(_, it)| *it).is_some_and(|(phase, soft)| is(phase, soft)))
        };
        let wanted = in_log(&|phase, _| phase == Phase::Wanted);
        let count = Count {
            there: with(&group, State::Alive) | with(&group, State::Draining),
            hanging: with(&group, State::Hanging),
            logged: in_log(&|_, _| true),
            soft: in_log(&|phase, soft| phase == Phase::Lowered && soft),
            wanted: wanted.len(),
            ..Count::default()
        };
        let joins = (count.hanging & in_log(&|phase, soft| phase == Phase::Wanted && !soft)).len();
        for (size, min, asked, came_down) in small() {
            // Placeholders that the size came down for and those that are joined add up; the model has one or the other.
            if joins > 0 && came_down > 0 {
                continue;
            }
            let places = Places { asked, first_size: size + came_down, ..Places::default() };
            let shown = (size - count.wanted - count.there.without(count.logged.without(count.soft)).len()).max(0);
            let fewer = asked.min(shown);
            let expected = match rule.place(Count { size, ..count }, places, joins, min) {
                Place::Nothing => Some((Set(0), 0)),
                Place::Log(new) => Some((new, usize::try_from(fewer - new.len()).unwrap())),
                Place::Lower(fewer) => Some((Set(0), usize::try_from(fewer).unwrap())),
                Place::Refused => None,
            };
            let replicas = usize::try_from(asked).unwrap();
            let request = Request { replicas, ..Request::default() };
            let found = decided(&group, size, min, usize::try_from(came_down).unwrap(), &request);
            assert_eq!(
                found,
                Ok(expected),
                "{group:?} of {size}, at least {min}: {asked} placeholders, {came_down} gone"
            );
            compared += 1;
        }
    }
    assert!(compared > 50_000, "{compared}");
}

/// Sizes, minimums, numbers of placeholders that are named, and of those that the size came down for.
fn small() -> impl Iterator<Item = (i8, i8, i8, i8)> {
    (0..90).map(|number| (number % 5, number / 5 % 2, 1 + number / 10 % 3, number / 30))
}

/// The marks of a Machine: none, that of its entry, and one of an acceptance that is over.
const MARKS: [u8; 3] = [0, 1, 9];

/// The finisher's step for one Machine, beside another entry that has been followed or not.
#[test]
fn deletions_are_finished_as_in_the_model() {
    let (rule, mut compared) = (Rule::default(), 0);
    let kinds = || STATES.into_iter().flat_map(|state| LOGGED.into_iter().map(move |logged| (state, logged)));
    for ((state, logged), mark) in kinds().flat_map(|kind| MARKS.into_iter().map(move |mark| (kind, mark))) {
        for (is_followed, are_others_followed) in [(false, false), (false, true), (true, false), (true, true)] {
            let machine = world::Machine { mark, ..modelled_machine(state) };
            let entry = modelled_entry(logged);
            let is_lowered = entry.phase == world::Phase::Lowered;
            if (is_followed && !is_lowered) || (mark == 1 && logged.is_none()) {
                continue;
            }
            // The program marks a Machine before it lowers the size for it, and leaves one whose mark somebody has taken off.
            if is_lowered && mark == 0 && state == State::Alive {
                continue;
            }
            // Before it forgets a soft entry the program asks the API server whether its Machine stays.
            let reached = Reached { is_followed, are_others_followed, is_down: true };
            let expected = rule.finish(entry, machine, reached);
            let found = steps((state, logged), mark, is_followed, are_others_followed);
            let expected: &[&str] = match expected {
                Some(Step::Mark | Step::Lower | Step::TakeBack) if entry.phase == world::Phase::Wanted => &["carry on"],
                Some(Step::Mark) => &["mark again"],
                Some(Step::Forget) => &["forget"],
                Some(Step::Delete) => &["delete"],
                Some(Step::Unmark) => &["unmark"],
                Some(Step::Lower | Step::TakeBack) | None => &[],
            };
            let what = format!("{state:?} {logged:?} {mark} {is_followed} {are_others_followed}");
            let found: Vec<_> = found.iter().map(String::as_str).collect();
            // Other steps are taken in the same look as a mark; and a Machine that is being deleted may be marked anew.
            let is_deleting = matches!(state, State::Draining | State::Hanging);
            let is_of = |step: &&str| match expected {
                ["mark again"] => *step != "unmark",
                _ => expected.contains(step) || (is_deleting && *step == "mark again"),
            };
            assert!(expected.iter().all(|step| found.contains(step)), "{what}: {found:?}, {expected:?}");
            assert!(found.iter().all(is_of), "{what}: {found:?}, {expected:?}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

/// The program's steps for Machine `a`, beside an entry of `b` that is lowered.
fn steps((state, logged): (State, Logged), mark: u8, is_followed: bool, are_others_followed: bool) -> Vec<String> {
    let (a, b) = (named(0), named(1));
    let (own, others) = (Ticket::from("t1"), Ticket::from("t2"));
    let log = DeletionLog::default()
        .with(logged.map(|(phase, soft)| Entry { phase, ..Entry::wanted(&a, &own, soft) }))
        .with([Entry { phase: Phase::Lowered, ..Entry::wanted(&b, &others, false) }]);
    let copied = |is: bool, named: &Named, ticket: &Ticket| {
        is.then(|| Entry { phase: Phase::Lowered, ..Entry::wanted(named, ticket, false) })
    };
    let copied = copied(is_followed, &a, &own).into_iter().chain(copied(are_others_followed, &b, &others));
    let copied = DeletionLog::default().with(copied);
    let copied = copied.print().unwrap().map(|text| SharedLog::new(text.as_str().into()));
    let mut set = testing::machine_set("workers-1");
    set.desired_replicas = set.replicas;
    let followed = followed(ScalableKind::MachineDeployment, &[SetView { object: Arc::new(set), log: copied }]);
    let delete_mark = (mark != 0).then(|| Ticket::from(format!("t{mark}").as_str()).mark().into());
    let machine = |named: &Named, deleting| {
        let mut machine = testing::machine(&named.name);
        (machine.meta.uid, machine.deleting) = (named.uid.clone(), deleting);
        machine
    };
    let mut machines = vec![Arc::new(machine(&b, true))];
    if state != State::Gone {
        machines.push(Arc::new(Machine { delete_mark, ..machine(&a, state != State::Alive) }));
    }
    let steps = RULE.finish(&log, &machines, &followed, &LeftSince::new(), Instant::now());
    let of_a = |step: &Finish| {
        let (uid, word) = match step {
            Finish::CarryOn => (&a.uid, "carry on"),
            Finish::ForgetGone(entry) | Finish::ForgetSoft(entry) => (&entry.uid, "forget"),
            Finish::Delete(entry) => (&entry.uid, "delete"),
            Finish::Leave(entry, _) => (&entry.uid, "leave"),
            Finish::MarkAgain(entry) => (&entry.uid, "mark again"),
            Finish::Unmark(machine) => (&machine.meta.uid, "unmark"),
        };
        (*uid == a.uid).then(|| word.to_owned())
    };
    steps.iter().filter_map(of_a).collect()
}
