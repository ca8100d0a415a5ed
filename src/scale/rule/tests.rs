//! The rule of deletion, decision by decision.

use rstest::rstest;

use super::*;
use crate::nodegroup::{SharedLog, testing};

const BOUNDS: Bounds = Bounds { min: 1, max: 10 };

fn named(name: &str) -> Named {
    Named { name: name.into(), uid: name.into(), never_joined: false }
}

/// `a` is wanted, `a!` is lowered, `a~` is wanted and soft, `a~!` is lowered and soft; the ticket is `t`.
fn log(entries: &[&str]) -> DeletionLog {
    let ticket = Ticket::from("t");
    let log = |text: &&str| {
        let name = text.trim_end_matches(['!', '~']);
        let phase = if text.ends_with('!') { Phase::Lowered } else { Phase::Wanted };
        Entry { phase, ..entry(&named(name), &ticket, text.contains('~')) }
    };
    DeletionLog::default().with(entries.iter().map(log))
}

/// `a` is alive, `a?` is being deleted, `a-` is gone.
fn lives(machines: &[&str]) -> HashMap<Uid, Life> {
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
    lives: HashMap<Uid, Life>,
    joined: HashSet<Uid>,
    listed: Listed,
}

impl Group {
    fn seen(&self) -> Seen<'_> {
        Seen {
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

/// The Machines that a request adds to the log.
fn accept(replicas: i32, in_log: &[&str], machines: &[&str], request: &[&str]) -> Result<Vec<String>, &'static str> {
    let lives = lives(machines);
    let alive = lives.iter().filter(|(_, life)| **life == Life::Alive).map(|(uid, _)| uid.clone()).collect();
    let listed = Listed { alive, ..Listed::default() };
    let group = Group { replicas, log: log(in_log), lives, listed, ..Group::default() };
    let mut acceptance = Acceptance::new(group.seen(), Ticket::from("new"));
    let machines = request.iter().map(|name| named(name)).collect();
    match acceptance.accept(&Request { machines, ..Request::default() }) {
        Ok(_) => {
            let new = |entry: &&Entry| entry.ticket == Ticket::from("new");
            let log = acceptance.log().cloned().unwrap_or_default();
            Ok(log.entries().iter().filter(new).map(|entry| entry.name.to_string()).collect())
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

/// OpenShift's MachineSets make a new Machine for one that is being deleted at once.
#[rstest]
#[case::counted(true, true)]
#[case::not_counted(false, false)]
fn a_machine_that_is_being_deleted_lowers_the_size_only_where_it_counts(#[case] counts: bool, #[case] lowers: bool) {
    let listed = Listed { alive: ["b", "c"].map(Uid::from).into(), ..Listed::default() };
    let group = Group { replicas: 3, lives: lives(&["a?", "b", "c"]), listed, ..Group::default() };
    let seen = Seen { counts_deleting: counts, ..group.seen() };
    let mut acceptance = Acceptance::new(seen, Ticket::from("new"));
    let request = Request { machines: vec![named("a")], ..Request::default() };
    assert_eq!(acceptance.accept(&request), Ok(Accepted::default()));
    assert_eq!(acceptance.log().is_some(), lowers);
}

/// Placeholders of a size: which Machines they stand for that have no Node any more, and how many replicas.
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
    let listed = Listed {
        alive: machines.iter().filter(|text| !text.ends_with(['?', '*'])).map(uid).collect(),
        draining: of('*').map(uid).collect(),
        without_node: of('?').map(|text| named(text.trim_end_matches('?'))).collect(),
        instances: None,
    };
    let group = Group { replicas, log: log(in_log), listed, ..Group::default() };
    let mut acceptance = Acceptance::new(Seen { given_up, ..group.seen() }, Ticket::from("new"));
    let accepted = acceptance.accept(&Request { replicas: named_replicas, ..Request::default() });
    let names =
        |accepted: &Accepted| accepted.without_node.iter().map(|named| named.name.to_string()).collect::<Vec<_>>();
    let seen = accepted.map(|accepted| (names(&accepted), accepted.replicas)).map_err(|refusal| word(&refusal));
    let expected = expected.map(|(names, count)| (names.iter().map(ToString::to_string).collect(), count));
    assert_eq!(seen, expected);
    let counts = acceptance.log().into_iter().flat_map(|log| log.entries().to_vec());
    assert!(counts.filter(|entry| entry.ticket == Ticket::from("new")).all(|entry| entry.counted));
}

#[test]
fn one_that_has_joined_is_refused_where_it_is_named_as_one_that_never_did() {
    let joined = HashSet::from([Uid::from("a")]);
    let group = Group { replicas: 3, lives: lives(&["a", "b"]), joined, ..Group::default() };
    let mut acceptance = Acceptance::new(group.seen(), Ticket::from("new"));
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
fn only_what_was_marked_under_its_ticket_lowers_the_size() {
    let log = log(&["a", "b", "c!"]);
    let marked = HashMap::from([("a".into(), "t".into()), ("b".into(), "older".into()), ("c".into(), "t".into())]);
    let lowering = lower(&log, 3, BOUNDS, &marked, &HashSet::new()).unwrap().unwrap();
    assert_eq!((lowering.to, lowering.names), (2, vec!["a".into()]));
    assert_eq!(lowering.log.wanted(), 1, "b is wanted still");
    assert_eq!(lower(&log, 3, BOUNDS, &HashMap::new(), &HashSet::new()), Ok(None));
}

#[rstest]
#[case::a_hard_one_keeps_the_min(&["a"], 1, None)]
#[case::a_soft_one_keeps_it_too(&["a~"], 1, None)]
#[case::together_they_keep_it(&["a", "b~"], 1, None)]
#[case::where_there_is_room_for_one_the_soft_one_stays(&["a", "b~"], 2, Some(1))]
fn the_minimum_is_looked_at_again(#[case] entries: &[&str], #[case] replicas: i32, #[case] to: Option<i32>) {
    let log = log(entries);
    let marked = log.entries().iter().map(|entry| (entry.uid.clone(), entry.ticket.clone())).collect();
    let lowering = lower(&log, replicas, BOUNDS, &marked, &HashSet::new());
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
    let listed = Listed { alive: alive.split(' ').map(Uid::from).collect(), ..Listed::default() };
    let going: Vec<_> = log.get(&"a".into()).into_iter().collect();
    let filled = filled(&log, replicas, &listed, &going);
    let names: Vec<_> = filled.iter().map(ToString::to_string).collect();
    assert_eq!(names.join(" "), expected);
}

#[test]
fn what_has_its_place_filled_leaves_the_log_without_lowering() {
    let log = log(&["a", "b"]);
    let marked = log.entries().iter().map(|entry| (entry.uid.clone(), entry.ticket.clone())).collect();
    let of_both = lower(&log, 3, BOUNDS, &marked, &HashSet::from(["a".into()])).unwrap().unwrap();
    assert_eq!((of_both.to, of_both.names), (2, vec!["b".into()]));
    assert!(of_both.log.get(&"a".into()).is_none());
    let of_none = lower(&log, 3, BOUNDS, &marked, &HashSet::from(["a".into(), "b".into()])).unwrap().unwrap();
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
    let seen = GroupVersion { uid: "x".into(), resource_version: "1".into(), generation: 1, replicas: 5, log: None };
    let now = GroupVersion { generation, replicas, ..seen.clone() };
    assert_eq!(fate(&seen, &now, 8, sized_by), expected);
    let anew = GroupVersion { uid: "y".into(), replicas: 8, generation: 2, ..seen.clone() };
    assert_eq!(fate(&seen, &anew, 8, SizedBy::Another), Fate::NotDone, "another object has the name");
}

/// A MachineSet of size 3 that has this log, and whose controller has seen it.
fn set(entries: &[&str], change: impl FnOnce(&mut ScalableResource)) -> SetView {
    let mut set = testing::machine_set("workers-1");
    set.desired_replicas = Some(3);
    change(&mut set);
    let log = log(entries).print().unwrap().map(|text| SharedLog::new(text.as_str().into()));
    SetView { object: Arc::new(set), log }
}

#[rstest]
#[case::all_has_arrived(set(&["a!"], |_| ()), true)]
#[case::the_copy_is_older(set(&["a"], |_| ()), false)]
#[case::there_is_no_copy(set(&[], |_| ()), false)]
#[case::its_controller_has_not_seen_it(set(&["a!"], |set| set.seen_generation = 0), false)]
#[case::its_size_has_not_come_with_it(set(&["a!"], |set| set.replicas = Some(4)), false)]
fn the_smaller_size_has_reached_the_machine_set(#[case] set: SetView, #[case] expected: bool) {
    let log = log(&["a!"]);
    let followed = Followed::by(ScalableKind::MachineDeployment, &[set]);
    assert_eq!(followed.has_all(&log), expected);
    let other = log.entries()[0].clone();
    assert!(!followed.has(&Entry { ticket: "another".into(), ..other }), "another acceptance is another entry");
}

#[test]
fn a_machine_set_that_is_the_group_needs_no_copy_of_the_size() {
    let own = set(&["a!"], |set| set.desired_replicas = None);
    assert!(Followed::by(ScalableKind::MachineSet, &[own]).has_all(&log(&["a!"])));
}

fn machine(text: &str) -> Arc<Machine> {
    let mut machine = testing::machine(text.trim_end_matches('?'));
    machine.meta.uid = text.trim_end_matches('?').into();
    machine.deleting = text.ends_with('?');
    Arc::new(machine)
}

#[rstest]
#[case::gone(&["a!"], &[], &["a!"], &["ForgetGone a"])]
#[case::going(&["a!"], &["a?"], &["a!"], &[])]
#[case::left_over(&["a!"], &["a"], &["a!"], &["Delete a"])]
#[case::not_followed(&["a!"], &["a"], &["a"], &[])]
#[case::gone_and_not_followed(&["a!"], &[], &["a"], &[])]
#[case::another_is_on_its_way(&["a!", "b"], &["a", "b"], &["a!", "b"], &["CarryOn"])]
#[case::another_is_not_followed(&["a!", "b!"], &["a", "b"], &["a!"], &[])]
fn the_finisher(
    #[case] entries: &[&str],
    #[case] machines: &[&str],
    #[case] copied: &[&str],
    #[case] expected: &[&str],
) {
    let machines: Vec<_> = machines.iter().map(|text| machine(text)).collect();
    let followed = Followed::by(ScalableKind::MachineDeployment, &[set(copied, |_| ())]);
    let steps = finish(&log(entries), &machines, &followed, &LeftSince::new(), Instant::now());
    assert_eq!(shown(steps), expected);
}

fn shown(steps: Vec<Finish>) -> Vec<String> {
    let shown = |step| match step {
        Finish::CarryOn => "CarryOn".to_owned(),
        Finish::ForgetGone(entry) => format!("ForgetGone {}", entry.name),
        Finish::ForgetSoft(entry) => format!("ForgetSoft {}", entry.name),
        Finish::Delete(entry) => format!("Delete {}", entry.name),
        Finish::Leave(entry, _) => format!("Leave {}", entry.name),
        Finish::MarkAgain(entry) => format!("MarkAgain {} as {}", entry.name, entry.ticket),
        Finish::Unmark(named, ..) => format!("Unmark {}", named.name),
    };
    steps.into_iter().map(shown).collect()
}

#[rstest]
#[case::its_provider_has_not_acted(4, Some(600), &[])]
#[case::its_provider_has_acted_just_now(3, None, &["Leave a"])]
#[case::not_for_long(3, Some(299), &["Leave a"])]
#[case::for_long(3, Some(300), &["Delete a"])]
#[case::more_have_gone_than_should(2, Some(300), &["Delete a"])]
fn a_machine_of_a_machine_pool_is_left_to_its_provider_for_a_time(
    #[case] status_replicas: i32,
    #[case] left_for: Option<u64>,
    #[case] expected: &[&str],
) {
    let pool = set(&["a!"], |pool| pool.status_replicas = status_replicas);
    let followed = Followed::by(ScalableKind::MachinePool, &[pool]);
    let since = Instant::now();
    let now = since + Duration::from_secs(left_for.unwrap_or_default());
    let left: LeftSince = left_for.map(|_| (("a".into(), "t".into()), since)).into_iter().collect();
    let steps = finish(&log(&["a!"]), &[machine("a")], &followed, &left, now);
    assert_eq!(shown(steps), expected);
    let another: LeftSince = [(("a".into(), "another".into()), since)].into();
    let steps = finish(&log(&["a!"]), &[machine("a")], &followed, &another, now);
    assert!(!shown(steps).contains(&"Delete a".to_owned()), "another acceptance begins anew");
}

#[rstest]
#[case::of_the_log("b", "capi-autoscaler-provider t", &[])]
#[case::of_another_ticket("b", "capi-autoscaler-provider u", &["Unmark b"])]
#[case::of_somebody_else("b", "by hand", &[])]
#[case::its_own("a", "capi-autoscaler-provider t", &[])]
#[case::of_another_ticket_on_one_that_has_an_entry("a", "capi-autoscaler-provider u", &["MarkAgain a as t"])]
#[case::of_somebody_else_on_one_that_has_an_entry("a", "by hand", &[])]
#[case::of_another_ticket_on_one_that_is_to_be_marked_anyway("c", "capi-autoscaler-provider u", &["CarryOn"])]
fn a_mark_is_taken_off_when_it_is_ours_and_belongs_to_nothing(
    #[case] name: &str,
    #[case] mark: &str,
    #[case] expected: &[&str],
) {
    let mut marked = Machine::clone(&machine(name));
    marked.delete_mark = Some(mark.into());
    let log = if name == "c" { log(&["a!", "c"]) } else { log(&["a!"]) };
    let steps = finish(&log, &[Arc::new(marked)], &Followed::default(), &LeftSince::new(), Instant::now());
    assert_eq!(shown(steps), expected);
}
