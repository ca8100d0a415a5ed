//! Properties that hold for any log and any Machines.

use proptest::prelude::*;

use super::{
    finish::{followed, machine, set},
    *,
};

/// Generates a log of any entries of the Machines `a` to `f`.
fn any_log() -> impl Strategy<Value = DeletionLog> {
    let entry = (any::<bool>(), any::<bool>(), 0..2_u8);
    prop::collection::btree_map("[a-f]", entry, 0..6).prop_map(|entries| {
        let entry = |(name, (is_lowered, soft, ticket)): (String, (bool, bool, u8))| {
            let phase = if is_lowered { Phase::Lowered } else { Phase::Wanted };
            Entry { phase, ..Entry::wanted(&named(&name), &format!("t{ticket}"), soft) }
        };
        DeletionLog::default().with(entries.into_iter().map(entry))
    })
}

fn any_lives() -> impl Strategy<Value = Map<Text, Life>> {
    let life = prop_oneof![Just(Life::Alive), Just(Life::Deleting), Just(Life::Gone)];
    prop::collection::hash_map("[a-f]", life, 0..6)
}

proptest! {
    /// Accepted requests keep the minimum together with all wanted entries, and accepting the same request again adds
    /// nothing.
    #[test]
    fn an_accepted_request_keeps_the_minimum_and_its_repetition_adds_nothing(
        log in any_log(), lives in any_lives(), replicas in 0..8_i32, names in prop::collection::btree_set("[a-f]", 1..4),
    ) {
        let alive = lives.iter().filter(|(_, life)| **life == Life::Alive).map(|(uid, _)| uid.clone()).collect();
        let listed = GroupMachines { alive, ..GroupMachines::default() };
        let group = Group { replicas, log: log.clone(), lives, listed, ..Group::default() };
        let request = Request { machines: names.iter().map(|name| named(name)).collect(), ..Request::default() };
        let mut acceptance = RULE.acceptance(group.state(), "new".into());
        if acceptance.accept(&request).is_ok() {
            let after = acceptance.log().unwrap_or(&log).clone();
            let new = after.entries().len() - log.entries().len();
            let wanted = i32::try_from(after.wanted()).unwrap();
            prop_assert!(new == 0 || replicas - wanted >= BOUNDS.min);
            prop_assert!(log.entries().iter().all(|entry| after.get(&entry.uid) == Some(entry)));
            let again = acceptance.accept(&request);
            prop_assert!(again.is_ok() && acceptance.log().unwrap_or(&log) == &after, "{again:?}");
        }
    }

    /// The size is lowered by the number of entries that turn from wanted to lowered, all of them marked under their
    /// ticket.
    #[test]
    fn the_size_is_lowered_once_for_each_marked_entry(
        log in any_log(), replicas in 0..8_i32, marks in prop::collection::hash_map("[a-f]", "t[01]", 0..6),
        filled in prop::collection::hash_set("[a-f]", 0..3),
    ) {
        if let Ok(Some(lowering)) = RULE.lower(&log, replicas, BOUNDS, &marks, &filled) {
            let turned = |entry: &&Entry| {
                let before = log.get(&entry.uid).map(|before| before.phase);
                entry.phase == Phase::Lowered && before == Some(Phase::Wanted)
            };
            let turned: Vec<_> = lowering.log.entries().iter().filter(turned).collect();
            prop_assert_eq!(replicas - lowering.to, i32::try_from(turned.len()).unwrap());
            prop_assert_eq!(lowering.names.len(), turned.len());
            prop_assert!(turned.iter().all(|entry| marks.get(&entry.uid) == Some(&entry.ticket)));
            prop_assert!(turned.iter().all(|entry| !filled.contains(&entry.uid)));
            prop_assert!(turned.is_empty() || lowering.to >= BOUNDS.min);
        }
    }

    /// Nothing is deleted by name, and no soft entry leaves the log, before every entry of the log is followed.
    #[test]
    fn nothing_is_deleted_by_name_before_all_is_followed(
        log in any_log(), copied in any_log(), machines in prop::collection::btree_set("[a-f]", 0..6),
    ) {
        let machines: Vec<_> = machines.iter().map(|name| machine(name)).collect();
        let followed = followed(Kind::MachineDeployment, &[set(&[], |set| set.log = copied)]);
        for step in RULE.finish(&log, &machines, &followed, &LeftSince::new(), Duration::ZERO) {
            match step {
                Finish::Delete(entry) => {
                    prop_assert!(followed.has_all(&log) && !entry.soft);
                    prop_assert!(followed.permits_by_name(&log, &entry));
                }
                Finish::ForgetSoft(entry) => prop_assert!(followed.has_all(&log) && entry.soft),
                Finish::ForgetGone(entry) => prop_assert!(followed.has(&entry)),
                Finish::CarryOn => prop_assert!(log.wanted() > 0),
                Finish::Leave(..) | Finish::MarkAgain(_) | Finish::Unmark(_) => prop_assert!(false, "{step:?}"),
            }
        }
    }

    /// The version from which a watch is trusted never goes back within a generation.
    #[test]
    fn an_era_never_begins_earlier(versions in prop::collection::vec((1..50_u64, any_log()), 1..12)) {
        let uid = Uid::from("group");
        let version = |number, log| Version { uid: &uid, generation: 1, number: Some(number), log };
        let mut era = Era::<Text>::new(&version(0, LogState::None));
        for (number, log) in &versions {
            let before = era.since();
            RULE.see(&mut era, &version(*number, LogState::Read(log)));
            prop_assert!(era.since() >= before);
            prop_assert!(log.entries().iter().all(|entry| RULE.believed_since(&era, &entry.uid).is_none()));
        }
    }
}
