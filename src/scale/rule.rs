//! The rule of deletion as pure functions of what was seen (docs/delete-rule.md says why each step is there). No call is
//! made here, and nothing is decided about deletions anywhere else.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arcstr::ArcStr;

use super::writer::SizedBy;
use crate::{
    capi::{Machine, ScalableKind, ScalableResource, Uid},
    index::GroupVersion,
    nodegroup::{Bounds, DeletionLog, LogError, Phase, SizeError, Ticket, deletion_log::Entry, size},
};

/// What is known of a Machine, not from before the group's present size was there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Life {
    Alive,
    Deleting,
    Gone,
}

/// A Machine that a request names.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Named {
    pub(super) name: ArcStr,
    pub(super) uid: Uid,
}

/// What a request names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Request {
    pub(super) machines: Vec<Named>,
    /// How many replicas without a Machine, or instances that are no Machines, which only lower the size.
    pub(super) others: usize,
}

/// What a group looks like when requests are decided.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    pub(super) log: &'a DeletionLog,
    pub(super) replicas: i32,
    pub(super) bounds: Bounds,
    /// Of each Machine that a request names and that isn't in the log.
    pub(super) lives: &'a HashMap<Uid, Life>,
    /// All Machines of the group that are alive, at the same moment as `lives`. Empty where no named one is being
    /// deleted: only then it matters.
    pub(super) alive: &'a HashSet<Uid>,
}

/// Why a request isn't accepted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// A Machine is in the log for a smaller target size, and leaves it within seconds.
    InTheWay(ArcStr),
    BelowMin(SizeError),
    Log(LogError),
}

/// Requests of one batch that have been accepted so far, in order of arrival.
#[derive(Debug)]
pub(super) struct Acceptance<'a> {
    seen: Seen<'a>,
    ticket: Ticket,
    log: DeletionLog,
    others: usize,
}

impl<'a> Acceptance<'a> {
    pub(super) fn new(seen: Seen<'a>, ticket: Ticket) -> Self {
        Self { log: seen.log.clone(), seen, ticket, others: 0 }
    }

    /// Accepts a request as a whole or not at all.
    pub(super) fn accept(&mut self, request: &Request) -> Result<(), Refusal> {
        let mut leaving = Vec::new();
        let mut deleting = Vec::new();
        for named in &request.machines {
            match self.log.get(&named.uid) {
                Some(entry) if entry.soft => return Err(Refusal::InTheWay(named.name.clone())),
                Some(_) => continue,
                None => {}
            }
            match self.seen.lives.get(&named.uid) {
                Some(Life::Alive) => leaving.push(named),
                Some(Life::Deleting) => deleting.push(named),
                Some(Life::Gone) | None => {}
            }
        }
        let others = self.others + request.others;
        let alive = leaving.len();
        let size = i64::from(self.seen.replicas) - as_i64(self.log.wanted() + leaving.len() + others);
        if !deleting.is_empty() {
            let replaced = self.replaced(size, &leaving);
            leaving.extend(deleting.into_iter().take(replaced));
        }
        if leaving.len() + request.others > 0 {
            let count = self.log.wanted() + leaving.len() + others;
            size::delete(self.seen.replicas, count, self.seen.bounds).map_err(Refusal::BelowMin)?;
        }
        let entries = leaving.into_iter().enumerate().map(|(position, named)| {
            let counted = position >= alive;
            Entry { counted, ..entry(named, &self.ticket, false) }
        });
        let log = self.log.clone().with(entries);
        log.check().map_err(Refusal::Log)?;
        (self.log, self.others) = (log, others);
        Ok(())
    }

    /// How many of those that are being deleted would be replaced by new Machines: as long as the size that is decided
    /// so far counts more than are there to stay.
    fn replaced(&self, size: i64, leaving: &[&Named]) -> usize {
        let logged = self.log.entries().iter().map(|entry| &entry.uid);
        let leaving: HashSet<_> = logged.chain(leaving.iter().map(|named| &named.uid)).collect();
        let staying = self.seen.alive.iter().filter(|uid| !leaving.contains(uid)).count();
        usize::try_from(size - as_i64(staying)).unwrap_or_default()
    }

    /// The log with all that was accepted, if that added to it.
    pub(super) fn log(&self) -> Option<&DeletionLog> {
        (self.log != *self.seen.log).then_some(&self.log)
    }
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A new entry of the log.
pub(super) fn entry(named: &Named, ticket: &Ticket, soft: bool) -> Entry {
    let Named { name, uid } = named.clone();
    Entry { name, uid, ticket: ticket.clone(), phase: Phase::Wanted, soft, counted: false }
}

/// The write that lowers the size for what is wanted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Lowering {
    pub(super) to: i32,
    pub(super) log: DeletionLog,
    /// The names of those for which it is lowered.
    pub(super) names: Vec<ArcStr>,
}

/// Lowers the size for entries that are wanted under the ticket under which they were marked; `None` when there are none.
/// Soft ones were asked for above the minimum, and know none.
pub(super) fn lower(
    log: &DeletionLog,
    replicas: i32,
    bounds: Bounds,
    marked: &HashMap<Uid, Ticket>,
) -> Result<Option<Lowering>, SizeError> {
    let is_ready = |entry: &Entry| entry.phase == Phase::Wanted && marked.get(&entry.uid) == Some(&entry.ticket);
    let ready: Vec<_> = log.entries().iter().filter(|entry| is_ready(entry)).collect();
    if ready.is_empty() {
        return Ok(None);
    }
    let min = if ready.iter().all(|entry| entry.soft) { 0 } else { bounds.min };
    let to = size::delete(replicas, ready.len(), Bounds { min, max: bounds.max })?;
    let names = ready.iter().map(|entry| entry.name.clone()).collect();
    Ok(Some(Lowering { to, log: log.clone().lowered(is_ready), names }))
}

/// What has become of a size write from `seen` to `to` whose answer was lost, by what the object is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Done,
    /// If it arrives yet, it finds another object or size than it tests, or else what it is repeated for.
    NotDone,
    /// It may be among the writes since, and others came after it.
    Unknown,
}

/// The size's manager tells whether the last change of it was this one. Where it wasn't, the spec's generation tells how
/// many writes there were since, at most: none, or one, which isn't this one when it made another size. Where somebody
/// else made the same size, this one would have had to be undone in between, which takes three.
pub(super) fn fate(seen: &GroupVersion, now: &GroupVersion, to: i32, sized_by: SizedBy) -> Fate {
    if now.uid != seen.uid || now.generation == seen.generation {
        return Fate::NotDone;
    }
    match (now.generation - seen.generation, now.replicas == to, sized_by) {
        (_, true, SizedBy::This) => Fate::Done,
        (1, false, _) | (1 | 2, true, SizedBy::Another) => Fate::NotDone,
        _ => Fate::Unknown,
    }
}

/// One thing that the finisher has to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Finish {
    /// Marks and lowers all that is wanted.
    CarryOn,
    /// Takes the entry of a Machine that seems gone out of the log, once it is known to be gone.
    ForgetGone(Entry),
    /// Takes a soft entry out of the log.
    ForgetSoft(Entry),
    /// Deletes the Machine itself: its deletion was spent on another one.
    Delete(Entry),
    /// Takes a mark of ours off that belongs to no entry: the Machine's name, and the mark.
    Unmark(ArcStr, ArcStr),
}

/// What is to be done about a group's deletions. The log and the Machines may be views that lag behind: what counts is
/// read again before it is done.
pub(super) fn finish(log: &DeletionLog, machines: &[Arc<Machine>], followed: &Followed) -> Vec<Finish> {
    let mut steps = Vec::new();
    if log.wanted() > 0 {
        steps.push(Finish::CarryOn);
    }
    let are_all_followed = followed.has_all(log);
    for entry in log.entries().iter().filter(|entry| followed.has(entry)) {
        let life = machines.iter().find(|machine| machine.meta.uid == entry.uid).map(|machine| machine.deleting);
        match life {
            None => steps.push(Finish::ForgetGone(entry.clone())),
            Some(_) if entry.soft && are_all_followed => steps.push(Finish::ForgetSoft(entry.clone())),
            Some(false) if !entry.soft && are_all_followed => steps.push(Finish::Delete(entry.clone())),
            Some(_) => {}
        }
    }
    for machine in machines {
        if let Some(mark) = &machine.delete_mark
            && Ticket::of_mark(mark).is_some_and(|ticket| !log.has(&ticket))
        {
            steps.push(Finish::Unmark(machine.meta.key.name.clone(), mark.clone()));
        }
    }
    steps
}

/// The lowered entries whose smaller size has reached whoever has the Machines made, by uid and ticket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Followed(HashMap<Uid, Ticket>);

impl Followed {
    /// By what the objects show that have the Machines made.
    pub(super) fn by(kind: ScalableKind, sets: &[Arc<ScalableResource>]) -> Self {
        // A new Machine of an old MachineSet would be as wrong as one of the newest.
        if !sets.iter().all(|set| set.observed_generation == set.generation) {
            return Self::default();
        }
        let has_size = |set: &&Arc<ScalableResource>| match kind {
            ScalableKind::MachineDeployment => has_its_size(set, sets),
            ScalableKind::MachineSet | ScalableKind::MachinePool => true,
        };
        let logs = sets.iter().filter(has_size).filter_map(|set| {
            let copied = DeletionLog::parse(set.deleting_log.as_deref()).ok()?;
            Some(copied.entries().to_vec())
        });
        let lowered = logs.flatten().filter(|entry| entry.phase == Phase::Lowered);
        Self(lowered.map(|entry| (entry.uid, entry.ticket)).collect())
    }

    /// Whether this entry is lowered and followed.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        entry.phase == Phase::Lowered && self.0.get(&entry.uid) == Some(&entry.ticket)
    }

    /// Whether all entries of a log are.
    pub(super) fn has_all(&self, log: &DeletionLog) -> bool {
        log.entries().iter().all(|entry| self.has(entry))
    }
}

/// Whether a MachineSet has the size that came with its copy of the log. While several have Machines, in a rollout that
/// the group has opted to scale down in, none has the whole size.
fn has_its_size(set: &ScalableResource, sets: &[Arc<ScalableResource>]) -> bool {
    let is_alone = sets.iter().filter(|set| set.replicas.unwrap_or_default() > 0).count() <= 1;
    !is_alone || set.desired_replicas == set.replicas
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::nodegroup::testing;

    const BOUNDS: Bounds = Bounds { min: 1, max: 10 };

    fn named(name: &str) -> Named {
        Named { name: name.into(), uid: name.into() }
    }

    /// `a` is wanted, `a!` is lowered, `a~` is wanted and soft; the ticket is `t`.
    fn log(entries: &[&str]) -> DeletionLog {
        let ticket = Ticket::from("t");
        let log = |text: &&str| {
            let name = text.trim_end_matches(['!', '~']);
            let phase = if text.ends_with('!') { Phase::Lowered } else { Phase::Wanted };
            Entry { phase, ..entry(&named(name), &ticket, text.ends_with('~')) }
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

    /// What a request of these Machines adds to the log.
    fn accept(
        replicas: i32,
        in_log: &[&str],
        machines: &[&str],
        request: &[&str],
    ) -> Result<Vec<String>, &'static str> {
        let (log, lives) = (log(in_log), lives(machines));
        let alive = lives.iter().filter(|(_, life)| **life == Life::Alive).map(|(uid, _)| uid.clone()).collect();
        let seen = Seen { log: &log, replicas, bounds: BOUNDS, lives: &lives, alive: &alive };
        let mut acceptance = Acceptance::new(seen, Ticket::from("new"));
        let request = Request { machines: request.iter().map(|name| named(name)).collect(), others: 0 };
        match acceptance.accept(&request) {
            Ok(()) => {
                let new = |entry: &&Entry| entry.ticket == Ticket::from("new");
                let log = acceptance.log().cloned().unwrap_or_default();
                Ok(log.entries().iter().filter(new).map(|entry| entry.name.to_string()).collect())
            }
            Err(Refusal::InTheWay(_)) => Err("in the way"),
            Err(Refusal::BelowMin(_)) => Err("below min"),
            Err(Refusal::Log(_)) => Err("full"),
        }
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
        let lowering = lower(&log, 3, BOUNDS, &marked).unwrap().unwrap();
        assert_eq!((lowering.to, lowering.names), (2, vec!["a".into()]));
        assert_eq!(lowering.log.wanted(), 1, "b is wanted still");
        assert_eq!(lower(&log, 3, BOUNDS, &HashMap::new()), Ok(None));
    }

    #[rstest]
    #[case::a_hard_one_keeps_the_min(&["a"], 1, None)]
    #[case::a_soft_one_knows_none(&["a~"], 1, Some(0))]
    #[case::together_they_keep_it(&["a", "b~"], 2, None)]
    fn the_minimum_is_looked_at_again(#[case] entries: &[&str], #[case] replicas: i32, #[case] to: Option<i32>) {
        let log = log(entries);
        let marked = log.entries().iter().map(|entry| (entry.uid.clone(), entry.ticket.clone())).collect();
        let lowering = lower(&log, replicas, BOUNDS, &marked);
        assert_eq!(lowering.ok().flatten().map(|it| it.to), to);
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
        let seen =
            GroupVersion { uid: "x".into(), resource_version: "1".into(), generation: 1, replicas: 5, log: None };
        let now = GroupVersion { generation, replicas, ..seen.clone() };
        assert_eq!(fate(&seen, &now, 8, sized_by), expected);
        let anew = GroupVersion { uid: "y".into(), replicas: 8, generation: 2, ..seen.clone() };
        assert_eq!(fate(&seen, &anew, 8, SizedBy::Another), Fate::NotDone, "another object has the name");
    }

    /// A MachineSet of size 3 that has this log, and whose controller has acted on it.
    fn set(entries: &[&str], change: impl FnOnce(&mut ScalableResource)) -> Arc<ScalableResource> {
        let mut set = testing::machine_set("workers-1");
        set.desired_replicas = Some(3);
        set.deleting_log = log(entries).print().unwrap().map(Into::into);
        change(&mut set);
        Arc::new(set)
    }

    #[rstest]
    #[case::all_has_arrived(set(&["a!"], |_| ()), true)]
    #[case::the_copy_is_older(set(&["a"], |_| ()), false)]
    #[case::there_is_no_copy(set(&[], |_| ()), false)]
    #[case::its_controller_has_not_acted(set(&["a!"], |set| set.observed_generation = 0), false)]
    #[case::its_size_has_not_come_with_it(set(&["a!"], |set| set.replicas = Some(4)), false)]
    fn the_smaller_size_has_reached_the_machine_set(#[case] set: Arc<ScalableResource>, #[case] expected: bool) {
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
        let steps: Vec<_> = finish(&log(entries), &machines, &followed)
            .into_iter()
            .map(|step| match step {
                Finish::CarryOn => "CarryOn".to_owned(),
                Finish::ForgetGone(entry) => format!("ForgetGone {}", entry.name),
                Finish::ForgetSoft(entry) => format!("ForgetSoft {}", entry.name),
                Finish::Delete(entry) => format!("Delete {}", entry.name),
                Finish::Unmark(name, _) => format!("Unmark {name}"),
            })
            .collect();
        assert_eq!(steps, expected);
    }

    #[rstest]
    #[case::of_the_log("capi-autoscaler-provider t", 0)]
    #[case::of_another_ticket("capi-autoscaler-provider u", 1)]
    #[case::of_somebody_else("by hand", 0)]
    fn a_mark_is_taken_off_when_it_is_ours_and_belongs_to_nothing(#[case] mark: &str, #[case] expected: usize) {
        let mut marked = Machine::clone(&machine("b"));
        marked.delete_mark = Some(mark.into());
        let steps = finish(&log(&["a!"]), &[Arc::new(marked)], &Followed::default());
        assert_eq!(steps.iter().filter(|step| matches!(step, Finish::Unmark(..))).count(), expected);
    }
}
