//! The finisher, the marks, and the followed entries.

use super::*;

/// An object that creates Machines.
pub(super) struct Owner {
    replicas: i32,
    desired_replicas: Option<i32>,
    status_replicas: i32,
    seen_generation: i64,
    pub(super) log: DeletionLog,
}

impl Source<Text> for Owner {
    fn replicas(&self) -> Option<i32> {
        Some(self.replicas)
    }

    fn desired_replicas(&self) -> Option<i32> {
        self.desired_replicas
    }

    fn status_replicas(&self) -> i32 {
        self.status_replicas
    }

    fn generation(&self) -> i64 {
        1
    }

    fn seen_generation(&self) -> i64 {
        self.seen_generation
    }

    fn log(&self) -> Option<&DeletionLog> {
        Some(&self.log)
    }
}

/// Creates a MachineSet of size 3 with this log, which its controller has observed.
pub(super) fn set(entries: &[&str], change: impl FnOnce(&mut Owner)) -> Owner {
    let mut set =
        Owner { replicas: 3, desired_replicas: Some(3), status_replicas: 3, seen_generation: 1, log: log(entries) };
    change(&mut set);
    set
}

pub(super) fn followed(kind: Kind, sets: &[Owner]) -> Followed<Text> {
    RULE.followed(kind, sets)
}

#[rstest]
#[case::all_has_arrived(set(&["a!"], |_| ()), true)]
#[case::the_copy_is_older(set(&["a"], |_| ()), false)]
#[case::there_is_no_copy(set(&[], |_| ()), false)]
#[case::its_controller_has_not_seen_it(set(&["a!"], |set| set.seen_generation = 0), false)]
#[case::its_size_has_not_come_with_it(set(&["a!"], |set| set.replicas = 4), false)]
fn the_smaller_size_has_reached_the_machine_set(#[case] set: Owner, #[case] expected: bool) {
    let log = log(&["a!"]);
    let followed = followed(Kind::MachineDeployment, &[set]);
    assert_eq!(followed.has_all(&log), expected);
    let other = log.entries()[0].clone();
    assert!(!followed.has(&Entry { ticket: "another".into(), ..other }), "another acceptance is another entry");
}

/// Creates a MachineSet during a rollout with a size of its own; `desired` is the size that was copied with the log.
fn part(entries: &[&str], replicas: i32, desired: i32) -> Owner {
    set(entries, |set| (set.replicas, set.desired_replicas) = (replicas, Some(desired)))
}

#[rstest]
#[case::both_have_machines([part(&[], 2, 3), part(&["a!"], 1, 3)], false)]
#[case::the_old_one_has_not_followed([part(&[], 3, 4), part(&["a!"], 1, 3)], false)]
#[case::the_old_one_has_no_machines([part(&[], 0, 4), part(&["a!"], 3, 3)], true)]
#[case::the_new_one_has_not_its_size_yet([part(&[], 0, 4), part(&["a!"], 2, 3)], false)]
#[case::the_new_one_has_none_yet([part(&[], 4, 4), part(&["a!"], 0, 3)], false)]
#[case::the_new_one_has_none_and_the_old_one_too_many([part(&[], 1, 1), part(&["a!"], 0, 0)], false)]
#[case::the_old_one_has_the_whole_size_by_chance([part(&[], 3, 3), part(&["a!"], 0, 3)], false)]
#[case::the_old_one_has_the_whole_size_and_the_log([part(&["a!"], 3, 3), part(&["a!"], 0, 3)], true)]
#[case::neither_has_machines([part(&[], 0, 0), part(&["a!"], 0, 0)], true)]
fn in_a_rollout_the_one_machine_set_that_has_machines_needs_the_whole_size(
    #[case] sets: [Owner; 2],
    #[case] expected: bool,
) {
    assert_eq!(followed(Kind::MachineDeployment, &sets).has_all(&log(&["a!"])), expected);
}

#[test]
fn a_machine_set_that_is_the_group_needs_no_copy_of_the_size() {
    let own = set(&["a!"], |set| set.desired_replicas = None);
    assert!(followed(Kind::MachineSet, &[own]).has_all(&log(&["a!"])));
}

/// A Machine, whose name is its uid.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Machine {
    uid: Uid,
    deleting: bool,
    pub(super) mark: Option<String>,
}

impl Member<Text> for Machine {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn is_deleting(&self) -> bool {
        self.deleting
    }

    fn ticket(&self) -> Option<Ticket> {
        self.mark.as_ref()?.strip_prefix("ours ").map(Ticket::from)
    }
}

impl crate::steps::MarkedMember<Text> for Machine {
    fn name(&self) -> String {
        self.uid.clone()
    }

    fn version(&self) -> u32 {
        0
    }
}

pub(super) fn machine(text: &str) -> Machine {
    Machine { uid: text.trim_end_matches('?').into(), deleting: text.ends_with('?'), mark: None }
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
    let followed = followed(Kind::MachineDeployment, &[set(copied, |_| ())]);
    let steps = RULE.finish(&log(entries), &machines, &followed, &LeftSince::new(), Duration::ZERO);
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
        Finish::Unmark(machine) => format!("Unmark {}", machine.uid),
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
    let followed = followed(Kind::MachinePool, &[pool]);
    let since = Duration::from_secs(7);
    let now = since + Duration::from_secs(left_for.unwrap_or_default());
    let left: LeftSince = left_for.map(|_| (("a".into(), "t".into()), since)).into_iter().collect();
    let steps = RULE.finish(&log(&["a!"]), &[machine("a")], &followed, &left, now);
    assert_eq!(shown(steps), expected);
    let another: LeftSince = [(("a".into(), "another".into()), since)].into();
    let steps = RULE.finish(&log(&["a!"]), &[machine("a")], &followed, &another, now);
    assert!(!shown(steps).contains(&"Delete a".to_owned()), "another acceptance begins anew");
}

#[rstest]
#[case::of_a_ticket_whose_other_machines_are_in_the_log("b", "ours t", &["Unmark b"])]
#[case::of_another_ticket("b", "ours u", &["Unmark b"])]
#[case::of_somebody_else("b", "by hand", &[])]
#[case::its_own("a", "ours t", &[])]
#[case::of_another_ticket_on_one_that_has_an_entry("a", "ours u", &["MarkAgain a as t"])]
#[case::of_somebody_else_on_one_that_has_an_entry("a", "by hand", &[])]
#[case::of_another_ticket_on_one_that_is_to_be_marked_anyway("c", "ours u", &["CarryOn"])]
fn a_mark_is_taken_off_when_it_is_ours_and_belongs_to_nothing(
    #[case] name: &str,
    #[case] mark: &str,
    #[case] expected: &[&str],
) {
    let marked = Machine { mark: Some(mark.into()), ..machine(name) };
    let log = if name == "c" { log(&["a!", "c"]) } else { log(&["a!"]) };
    let steps = RULE.finish(&log, &[marked], &Followed::default(), &LeftSince::new(), Duration::ZERO);
    assert_eq!(shown(steps), expected);
}

#[rstest]
#[case::one_that_waits("a", Life::Alive, false, None, Marking::Mark)]
#[case::one_that_has_joined("a", Life::Alive, true, None, Marking::Joined)]
#[case::one_that_has_joined_and_has_an_older_mark("a", Life::Alive, true, Some("u"), Marking::Joined)]
#[case::one_that_has_joined_since_it_was_marked("a", Life::Alive, true, Some("t"), Marking::Marked)]
#[case::one_that_is_marked("a", Life::Alive, false, Some("t"), Marking::Marked)]
#[case::one_that_goes_anyway("a", Life::Deleting, false, None, Marking::Mark)]
#[case::one_that_is_gone("a", Life::Gone, false, None, Marking::NotNeeded)]
#[case::a_soft_one_that_waits("a~", Life::Alive, false, None, Marking::Mark)]
#[case::a_soft_one_that_has_joined("a~", Life::Alive, true, None, Marking::Joined)]
#[case::a_soft_one_that_has_joined_since_it_was_marked("a~", Life::Alive, true, Some("t"), Marking::Marked)]
#[case::a_soft_one_that_goes_anyway("a~", Life::Deleting, false, None, Marking::DeletedElsewhere)]
#[case::a_soft_one_that_goes_anyway_with_an_older_mark(
    "a~",
    Life::Deleting,
    false,
    Some("u"),
    Marking::DeletedElsewhere
)]
#[case::a_soft_one_that_goes_and_has_its_mark("a~", Life::Deleting, false, Some("t"), Marking::Marked)]
#[case::a_soft_one_that_is_gone("a~", Life::Gone, false, None, Marking::DeletedElsewhere)]
fn one_that_never_joined_is_marked_only_while_it_has_no_node(
    #[case] text: &str,
    #[case] life: Life,
    #[case] has_node: bool,
    #[case] mark: Option<&str>,
    #[case] expected: Marking,
) {
    let entry = log(&[text]).entries()[0].clone();
    let entry = Entry { pending: !entry.soft, ..entry };
    let mark = mark.map(Ticket::from);
    assert_eq!(RULE.marking(&entry, life, has_node, mark.as_ref()), expected);
}

#[rstest]
#[case::more_are_alive_than_the_size(true, 3, false)]
#[case::as_many_are_alive_as_the_size(true, 2, true)]
#[case::it_goes(false, 3, true)]
fn a_soft_entry_is_over_when_nothing_is_left_to_go(
    #[case] is_alive: bool,
    #[case] alive: usize,
    #[case] is_over: bool,
) {
    assert_eq!(RULE.is_soft_over(is_alive, alive, 2), is_over);
}

#[rstest]
#[case::all_that_were_named(5, 2, 2, 0, 5, Ok(3))]
#[case::one_that_has_a_machine_by_now(5, 1, 2, 0, 5, Err("replaced"))]
#[case::one_that_the_size_came_down_for(4, 1, 2, 0, 5, Ok(3))]
#[case::instances(5, 0, 0, 2, 5, Ok(3))]
#[case::below_the_minimum(2, 2, 2, 0, 2, Err("below min"))]
#[case::below_the_minimum_with_what_is_wanted(3, 2, 2, 0, 3, Err("below min"))]
fn placeholders_are_given_up_by_what_is_there_now(
    #[case] replicas: i32,
    #[case] left: usize,
    #[case] named: usize,
    #[case] instances: usize,
    #[case] from: i32,
    #[case] expected: Result<i32, &'static str>,
) {
    let log = if replicas == 3 { log(&["a"]) } else { log(&["a!"]) };
    let placeholders = Placeholders { replicas: named, instances, from };
    let given_up: Result<_, Refusal> = RULE.give_up(&log, replicas, BOUNDS, left, placeholders);
    assert_eq!(given_up.map_err(|refusal| word(&refusal)), expected);
}

#[rstest]
#[case::replicas_before_machines(5, -1, 2, 1, (0, 1))]
#[case::machines_that_wait_as_well(5, -3, 2, 1, (1, 2))]
#[case::never_one_that_has_a_node(3, -3, 2, 1, (1, 0))]
#[case::never_below_the_minimum(2, -2, 0, 2, (1, 0))]
fn a_smaller_target_size_gives_up_what_has_no_node(
    #[case] replicas: i32,
    #[case] delta: i32,
    #[case] with_node: i32,
    #[case] waiting: usize,
    #[case] expected: (usize, usize),
) {
    let shrinking = RULE.shrink(&DeletionLog::default(), replicas, 1, delta, (with_node, waiting));
    assert_eq!(shrinking.map(|it| (it.machines, it.others)), Ok(expected));
}
