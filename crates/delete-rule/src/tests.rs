//! The delete rule, decision by decision.

use std::{
    collections::{HashMap, HashSet},
    hash::RandomState,
    time::Duration,
};

use rstest::rstest;

use self::finish::Machine;
use super::*;

mod costs;
mod failing;
mod finish;
mod properties;
mod reconcile;
mod steps;

/// Identities as strings, and times as durations since an arbitrary moment.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Text;

impl Types for Text {
    type Uid = String;
    type Name = String;
    type Ticket = String;
    type Time = Duration;
    type Hasher = RandomState;
    type LogError = usize;

    fn between(from: Duration, to: Duration) -> Duration {
        to.saturating_sub(from)
    }

    fn check(log: &Log<Self>, _: usize) -> Result<(), usize> {
        let entries = log.entries().len();
        if entries > MOST_ENTRIES { Err(entries) } else { Ok(()) }
    }
}

type Uid = String;
type Ticket = String;
type Named = crate::Named<Text>;
type Entry = crate::Entry<Text>;
type DeletionLog = Log<Text>;
type GroupMachines = crate::GroupMachines<Text>;
type GroupState<'a> = crate::GroupState<'a, Text>;
type Refusal = crate::Refusal<Text>;
type Request = crate::Request<Text>;
type Accepted = crate::Accepted<Text>;
type Finish = crate::Finish<Text, Machine>;
type LeftSince = crate::LeftSince<Text>;

const BOUNDS: Bounds = Bounds { min: 1, max: 10 };

fn named(name: &str) -> Named {
    Named { name: name.into(), uid: name.into(), never_joined: false }
}

/// Parses a log: `a` is wanted, `a!` is lowered, `a~` is wanted and soft, `a~!` is lowered and soft; the ticket is `t`.
fn log(entries: &[&str]) -> DeletionLog {
    let ticket = Ticket::from("t");
    let log = |text: &&str| {
        let name = text.trim_end_matches(['!', '~']);
        let phase = if text.ends_with('!') { Phase::Lowered } else { Phase::Wanted };
        Entry { phase, ..Entry::wanted(&named(name), &ticket, text.contains('~')) }
    };
    DeletionLog::default().with(entries.iter().map(log))
}

/// Parses lives: `a` is alive, `a?` is being deleted, `a-` is gone.
fn lives(machines: &[&str]) -> Map<Text, Life> {
    let life = |text: &&str| match text.chars().last() {
        Some('?') => Life::Deleting,
        Some('-') => Life::Gone,
        _ => Life::Alive,
    };
    machines.iter().map(|text| (Uid::from(text.trim_end_matches(['?', '-'])), life(text))).collect()
}

/// A group within [`BOUNDS`], whose MachineSets count Machines that are being deleted.
#[derive(Default)]
struct Group {
    replicas: i32,
    log: DeletionLog,
    lives: Map<Text, Life>,
    joined: HashSet<Uid>,
    listed: GroupMachines,
}

impl Group {
    fn state(&self) -> GroupState<'_> {
        GroupState {
            log: &self.log,
            replicas: self.replicas,
            bounds: BOUNDS,
            lives: &self.lives,
            joined: &self.joined,
            listed: &self.listed,
            counts_deleting: true,
            given_up: 0,
        }
    }
}

/// Returns the Machines that a request adds to the log.
fn accept(replicas: i32, in_log: &[&str], machines: &[&str], request: &[&str]) -> Result<Vec<String>, &'static str> {
    let lives = lives(machines);
    let alive = lives.iter().filter(|(_, life)| **life == Life::Alive).map(|(uid, _)| uid.clone()).collect();
    let listed = GroupMachines { alive, ..GroupMachines::default() };
    let group = Group { replicas, log: log(in_log), lives, listed, ..Group::default() };
    let mut acceptance = RULE.acceptance(group.state(), Ticket::from("new"));
    let machines = request.iter().map(|name| named(name)).collect();
    match acceptance.accept(&Request { machines, ..Request::default() }) {
        Ok(_) => {
            let new = |entry: &&Entry| entry.ticket == "new";
            let log = acceptance.log().cloned().unwrap_or_default();
            Ok(log.entries().iter().filter(new).map(|entry| entry.name.clone()).collect())
        }
        Err(refusal) => Err(word(&refusal)),
    }
}

fn word(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::InTheWay(_) => "in the way",
        Refusal::HasJoined(_) => "has joined",
        Refusal::Replaced { .. } => "replaced",
        Refusal::BelowMin(_) => "below min",
        Refusal::IsOfMachines => "is of Machines",
        Refusal::Log(_) => "full",
    }
}

/// OpenShift's MachineSets immediately replace a Machine that is being deleted.
#[rstest]
#[case::counted(true, true)]
#[case::not_counted(false, false)]
fn a_machine_that_is_being_deleted_lowers_the_size_only_where_it_counts(#[case] counts: bool, #[case] lowers: bool) {
    let listed = GroupMachines { alive: ["b", "c"].map(Uid::from).into(), ..GroupMachines::default() };
    let group = Group { replicas: 3, lives: lives(&["a?", "b", "c"]), listed, ..Group::default() };
    let state = GroupState { counts_deleting: counts, ..group.state() };
    let mut acceptance = RULE.acceptance(state, Ticket::from("new"));
    let request = Request { machines: vec![named("a")], ..Request::default() };
    assert_eq!(acceptance.accept(&request), Ok(Accepted::default()));
    assert_eq!(acceptance.log().is_some(), lowers);
}

/// Placeholders stand for Machines that no longer have a Node, or for replicas. Each case expects the Machines and the
/// number of replicas.
#[rstest]
#[case::of_missing_replicas(5, &[], &["a", "b"], 2, 0, Ok((&[][..], 2)))]
#[case::of_more_than_there_are(3, &[], &["a", "b"], 2, 0, Err("replaced"))]
#[case::of_those_that_were_given_up(2, &[], &["a", "b"], 2, 2, Ok((&[][..], 0)))]
#[case::of_one_that_was_given_up(3, &[], &["a", "b"], 2, 1, Ok((&[][..], 1)))]
#[case::of_a_machine_that_hangs_in_deletion(3, &[], &["a", "b", "c?"], 1, 0, Ok((&["c"][..], 0)))]
#[case::of_a_machine_that_is_drained(3, &[], &["a", "b", "c*"], 1, 0, Err("replaced"))]
#[case::of_such_a_one_and_of_a_replica(4, &[], &["a", "b", "c?"], 2, 0, Ok((&["c"][..], 1)))]
#[case::beside_one_that_is_in_the_log(3, &["b"], &["a", "b"], 1, 0, Ok((&[][..], 1)))]
#[case::beside_one_that_is_lowered(2, &["b!"], &["a", "b", "c?"], 1, 0, Ok((&["c"][..], 0)))]
#[case::of_one_that_is_lowered(2, &["c!"], &["a", "b", "c?"], 1, 1, Ok((&[][..], 0)))]
#[case::beside_one_that_went_for_a_smaller_target_size(3, &["c~!"], &["a", "b", "c?"], 1, 0, Ok((&[][..], 1)))]
#[case::of_one_that_is_wanted_joins_it(3, &["c"], &["a", "b", "c?"], 1, 0, Ok((&["c"][..], 0)))]
#[case::below_the_minimum(1, &[], &[], 1, 0, Err("below min"))]
fn placeholders_are_accepted(
    #[case] replicas: i32,
    #[case] in_log: &[&str],
    #[case] machines: &[&str],
    #[case] named_replicas: usize,
    #[case] given_up: usize,
    #[case] expected: Result<(&[&str], usize), &'static str>,
) {
    let of = |mark: char| machines.iter().filter(move |text| text.ends_with(mark));
    let uid = |text: &&str| Uid::from(text.trim_end_matches(['?', '*']));
    let listed = GroupMachines {
        alive: machines.iter().filter(|text| !text.ends_with(['?', '*'])).map(uid).collect(),
        draining: of('*').map(uid).collect(),
        without_node: of('?').map(|text| named(text.trim_end_matches('?'))).collect(),
        instances: None,
    };
    let group = Group { replicas, log: log(in_log), listed, ..Group::default() };
    let mut acceptance = RULE.acceptance(GroupState { given_up, ..group.state() }, Ticket::from("new"));
    let accepted = acceptance.accept(&Request { replicas: named_replicas, ..Request::default() });
    let names = |accepted: &Accepted| accepted.without_node.iter().map(|named| named.name.clone()).collect::<Vec<_>>();
    let seen = accepted.map(|accepted| (names(&accepted), accepted.replicas)).map_err(|refusal| word(&refusal));
    let expected = expected.map(|(names, count)| (names.iter().map(ToString::to_string).collect(), count));
    assert_eq!(seen, expected);
    let counts = acceptance.log().into_iter().flat_map(|log| log.entries().to_vec());
    assert!(counts.filter(|entry| entry.ticket == "new").all(|entry| entry.counted));
}

#[test]
fn one_that_has_joined_is_refused_where_it_is_named_as_one_that_never_did() {
    let joined = HashSet::from([Uid::from("a")]);
    let group = Group { replicas: 3, lives: lives(&["a", "b"]), joined, ..Group::default() };
    let mut acceptance = RULE.acceptance(group.state(), Ticket::from("new"));
    let mut accept = |never_joined| {
        let machines = vec![Named { never_joined, ..named("a") }];
        acceptance.accept(&Request { machines, ..Request::default() })
    };
    assert!(matches!(accept(true), Err(Refusal::HasJoined(name)) if name == "a"));
    assert!(accept(false).is_ok(), "by its Node it may go");
}

#[rstest]
#[case::one_that_is_alive(3, &[], &["a", "b", "c"], &["b"], Ok("b"))]
#[case::one_that_is_gone_needs_nothing(3, &[], &["a-", "b", "c"], &["a"], Ok(""))]
#[case::one_that_is_wanted_is_joined(3, &["a"], &["b", "c"], &["a"], Ok(""))]
#[case::one_that_is_lowered_needs_nothing(2, &["a!"], &["b", "c"], &["a"], Ok(""))]
#[case::a_soft_one_is_in_the_way(3, &["a~"], &["b", "c"], &["a", "b"], Err("in the way"))]
#[case::down_to_the_min(3, &[], &["a", "b", "c"], &["a", "b"], Ok("a b"))]
#[case::below_the_min(2, &[], &["a", "b"], &["a", "b"], Err("below min"))]
#[case::below_the_min_with_what_is_wanted(3, &["c"], &["a", "b"], &["a", "b"], Err("below min"))]
#[case::at_the_min_a_lowered_one_is_a_success(1, &["a!"], &["b"], &["a"], Ok(""))]
#[case::a_deleting_one_that_would_be_replaced(3, &[], &["a?", "b", "c"], &["a"], Ok("a"))]
#[case::a_deleting_one_that_goes_for_a_smaller_size(2, &[], &["a?", "b", "c"], &["a"], Ok(""))]
#[case::of_two_deleting_ones_as_many_as_would_be_replaced(3, &[], &["a?", "b?", "c", "d"], &["a", "b"], Ok("a"))]
#[case::a_deleting_one_beside_one_that_is_alive(3, &[], &["a?", "b", "c"], &["a", "b"], Ok("b a"))]
#[case::a_deleting_one_while_another_is_wanted(3, &["b"], &["a?", "c"], &["a"], Ok("a"))]
fn a_request_is_accepted(
    #[case] replicas: i32,
    #[case] log: &[&str],
    #[case] machines: &[&str],
    #[case] request: &[&str],
    #[case] expected: Result<&str, &'static str>,
) {
    let accepted = accept(replicas, log, machines, request).map(|names| names.join(" "));
    assert_eq!(accepted, expected.map(str::to_owned));
}

#[test]
fn a_request_that_does_not_fit_the_log_leaves_nothing_in_it() {
    let names: Vec<_> = (0..=MOST_ENTRIES).map(|n| format!("m{n}")).collect();
    let (logged, others) = names.split_at(MOST_ENTRIES - 1);
    let [one, other] = others else { panic!("two are left") };
    let log = log(&logged.iter().map(String::as_str).collect::<Vec<_>>());
    let group = Group { replicas: 2_000, log, lives: lives(&[one, other]), ..Group::default() };
    let state = GroupState { bounds: Bounds { min: 1, max: 2_000 }, ..group.state() };
    let mut acceptance = RULE.acceptance(state, Ticket::from("new"));
    let mut accept = |names: &[&str]| {
        let machines = names.iter().copied().map(named).collect();
        acceptance.accept(&Request { machines, ..Request::default() }).map_err(|refusal| word(&refusal))
    };
    assert_eq!(accept(&[one, other]), Err("full"));
    assert_eq!(accept(&[other]), Ok(Accepted::default()));
    let log = acceptance.log().unwrap();
    assert_eq!((log.entries().len(), log.get(one), log.get(other).is_some()), (MOST_ENTRIES, None, true));
}

#[test]
fn only_what_was_marked_under_its_ticket_lowers_the_size() {
    let log = log(&["a", "b", "c!"]);
    let marked = HashMap::from([("a".into(), "t".into()), ("b".into(), "older".into()), ("c".into(), "t".into())]);
    let lowering = RULE.lower(&log, 3, BOUNDS, &marked, &HashSet::new()).unwrap().unwrap();
    assert_eq!((lowering.to, lowering.names), (2, vec!["a".into()]));
    assert_eq!(lowering.log.wanted(), 1, "b is wanted still");
    assert_eq!(RULE.lower(&log, 3, BOUNDS, &HashMap::new(), &HashSet::new()), Ok(None));
}

#[rstest]
#[case::a_hard_one_keeps_the_min(&["a"], 1, None)]
#[case::a_soft_one_keeps_it_too(&["a~"], 1, None)]
#[case::together_they_keep_it(&["a", "b~"], 1, None)]
#[case::where_one_more_may_go_the_soft_one_stays(&["a", "b~"], 2, Some(1))]
fn the_minimum_is_looked_at_again(#[case] entries: &[&str], #[case] replicas: i32, #[case] to: Option<i32>) {
    let log = log(entries);
    let marked = log.entries().iter().map(|entry| (entry.uid.clone(), entry.ticket.clone())).collect();
    let lowering = RULE.lower(&log, replicas, BOUNDS, &marked, &HashSet::new());
    assert_eq!(lowering.ok().flatten().map(|it| it.to), to);
}

#[rstest]
#[case::its_place_is_open(3, &["a"], "b c", "")]
#[case::its_place_is_filled(3, &["a"], "b c d", "a")]
#[case::another_that_is_wanted_leaves_its_own_place(3, &["a", "b"], "b c d", "a")]
#[case::both_places_are_counted(3, &["a", "b"], "b c", "")]
#[case::another_that_is_lowered_does_so_too(2, &["a", "b!"], "b c d", "a")]
#[case::it_may_have_gone_for_a_soft_one(2, &["a", "b~!"], "b c", "")]
#[case::more_than_the_size_are_there(2, &["a"], "b c d e", "a")]
fn an_entry_whose_machine_has_gone_by_itself_is_counted(
    #[case] replicas: i32,
    #[case] entries: &[&str],
    #[case] alive: &str,
    #[case] expected: &str,
) {
    let log = log(entries);
    let listed = GroupMachines { alive: alive.split(' ').map(Uid::from).collect(), ..GroupMachines::default() };
    let deleted_elsewhere: Vec<_> = log.get(&"a".into()).into_iter().collect();
    let filled = RULE.filled(&log, replicas, &listed, &deleted_elsewhere);
    let names: Vec<_> = filled.iter().map(ToString::to_string).collect();
    assert_eq!(names.join(" "), expected);
}

#[test]
fn a_wanted_entry_whose_place_is_filled_leaves_the_log_without_lowering_the_size() {
    let log = log(&["a", "b"]);
    let marked = log.entries().iter().map(|entry| (entry.uid.clone(), entry.ticket.clone())).collect();
    let of_both = RULE.lower(&log, 3, BOUNDS, &marked, &HashSet::from(["a".into()])).unwrap().unwrap();
    assert_eq!((of_both.to, of_both.names), (2, vec!["b".into()]));
    assert!(of_both.log.get(&"a".into()).is_none());
    let of_none = RULE.lower(&log, 3, BOUNDS, &marked, &HashSet::from(["a".into(), "b".into()])).unwrap().unwrap();
    assert_eq!((of_none.to, of_none.names, of_none.log), (3, vec![], DeletionLog::default()));
}

#[rstest]
#[case::nothing_was_written(5, 1, SizedBy::Another, Fate::NotDone)]
#[case::something_else_was_written(5, 2, SizedBy::Another, Fate::NotDone)]
#[case::another_size_was_written(9, 2, SizedBy::Another, Fate::NotDone)]
#[case::it_was_done(8, 2, SizedBy::This, Fate::Done)]
#[case::it_was_done_and_other_things_were_written(8, 4, SizedBy::This, Fate::Done)]
#[case::another_made_the_same_size(8, 2, SizedBy::Another, Fate::NotDone)]
#[case::another_made_the_same_size_and_wrote_something_else(8, 3, SizedBy::Another, Fate::NotDone)]
#[case::it_may_have_been_done_undone_and_done_by_another(8, 4, SizedBy::Another, Fate::Unknown)]
#[case::it_may_have_been_done_and_changed_since(9, 3, SizedBy::Another, Fate::Unknown)]
#[case::nobody_says_who_made_the_same_size(8, 2, SizedBy::Nobody, Fate::Unknown)]
fn a_write_whose_answer_was_lost(
    #[case] replicas: i32,
    #[case] generation: i64,
    #[case] sized_by: SizedBy,
    #[case] expected: Fate,
) {
    let seen = Spec { uid: &"x", generation: 1, replicas: 5 };
    let now = Spec { generation, replicas, ..seen };
    assert_eq!(RULE.fate(&seen, &now, 8, sized_by), expected);
    let anew = Spec { uid: &"y", replicas: 8, generation: 2 };
    assert_eq!(RULE.fate(&seen, &anew, 8, SizedBy::Another), Fate::NotDone, "another object has the name");
}
