//! Lanes and slots under any order of events. The test itself plays the role of the tasks.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeMap, time::Duration};

use proptest::{collection::vec, prelude::*, sample::Index as Pick};
use tokio::sync::oneshot;

use super::{super::command::Caller, *};

const SLOTS: usize = 2;

/// The position of a lane's task.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum At {
    /// Before its next turn.
    Boundary,
    Command,
    Reconcile,
}

#[derive(Clone, Debug)]
enum Step {
    Command(u8),
    Change(Vec<u8>),
    /// A lane's task advances to its next position; a reconcile ends with this result.
    Go(Pick, End),
    /// A lane's task is aborted before its end.
    Break(Pick),
    Progress(u8),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Done,
    Waits,
    Failed,
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![3 => Just(End::Done), 1 => Just(End::Waits), 1 => Just(End::Failed)];
    prop_oneof![
        3 => (0..6_u8).prop_map(Step::Command),
        3 => vec(0..6_u8, 1..4).prop_map(Step::Change),
        8 => (any::<Pick>(), end).prop_map(|(pick, end)| Step::Go(pick, end)),
        1 => any::<Pick>().prop_map(Step::Break),
        1 => (0..5_u8).prop_map(Step::Progress),
    ]
}

fn group(number: u8) -> GroupId {
    GroupId::parse(&format!("MachineDeployment/team-a/g{number}")).unwrap()
}

/// Lanes, and the positions of their simulated tasks.
struct World {
    state: State,
    tasks: BTreeMap<GroupId, At>,
    last_turns: HashMap<GroupId, At>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let state = State { lanes: HashMap::new(), work_queue: WorkQueue::at_once(SLOTS) };
        Self { state, tasks: BTreeMap::new(), last_turns: HashMap::new(), now: Instant::now() }
    }

    fn run_lanes(&mut self, ids: Vec<GroupId>) {
        for id in ids {
            assert_eq!(self.tasks.insert(id.clone(), At::Boundary), None, "{id} runs twice");
            self.last_turns.remove(&id);
        }
    }

    fn begin_reconciles(&mut self) {
        let waiting = self.state.work_queue.waiting();
        let idle: Vec<_> = waiting.into_iter().filter(|id| !self.tasks.contains_key(id)).collect();
        let begun = self.state.begin_reconciles();
        assert_eq!(begun, idle[..begun.len()], "not first in, first out");
        self.run_lanes(begun);
    }

    /// Wakes the finisher.
    fn reconcile_due(&mut self, changed: &[u8]) {
        for number in changed {
            self.state.work_queue.change(group(*number));
        }
        self.state.work_queue.take_later(self.now);
        self.begin_reconciles();
    }

    fn command(&mut self, number: u8) {
        let id = group(number);
        let (answer, _) = oneshot::channel();
        if self.state.enqueue(&id, Command::Increase(1, Caller::new("increase", answer, &Arc::default()))).is_new {
            self.run_lanes(vec![id]);
        }
    }

    fn go(&mut self, id: &GroupId, end: End) {
        match self.tasks[id] {
            At::Boundary => self.next(id),
            At::Command => {
                self.tasks.insert(id.clone(), At::Boundary);
            }
            At::Reconcile => {
                let result = match end {
                    End::Done => ReconcileResult::Done,
                    End::Waits => ReconcileResult::Waits(self.now + Duration::from_secs(2)),
                    End::Failed => ReconcileResult::Failed,
                };
                let begun = self.state.end_reconcile(id, result, self.now);
                self.tasks.insert(id.clone(), At::Boundary);
                self.run_lanes(begun);
            }
        }
    }

    fn next(&mut self, id: &GroupId) {
        let has_commands = !self.state.lanes[id].commands.is_empty();
        let had_slot = self.state.lanes[id].reconcile == ReconcileState::Next;
        let may_reconcile =
            had_slot || self.state.work_queue.waiting().contains(id) && self.state.work_queue.free() > 0;
        let last = self.last_turns.get(id).copied();
        let turn = match self.state.next(id) {
            Some(Turn::Command(_)) => At::Command,
            Some(Turn::Reconcile) => At::Reconcile,
            None => {
                assert!(!has_commands && !may_reconcile, "{id} has something to do");
                self.tasks.remove(id);
                return;
            }
        };
        if has_commands && may_reconcile && !had_slot {
            assert_ne!(last, Some(turn), "commands and looks of {id} don't take turns");
        }
        self.last_turns.insert(id.clone(), turn);
        self.tasks.insert(id.clone(), turn);
    }

    fn check(&self) {
        let mut lanes: Vec<_> = self.state.lanes.keys().collect();
        lanes.sort();
        assert_eq!(lanes, self.tasks.keys().collect::<Vec<_>>(), "each lane has a task");
        let with_slot = self.state.lanes.values().filter(|lane| lane.reconcile != ReconcileState::None).count();
        assert_eq!(with_slot + self.state.work_queue.free(), SLOTS, "slots are lost or made");
        let under_way = self.tasks.values().filter(|at| **at == At::Reconcile).count();
        assert!(under_way <= with_slot, "a look without a slot");
        if self.state.work_queue.free() > 0 {
            let waiting = self.state.work_queue.waiting();
            assert!(waiting.iter().all(|id| self.tasks.contains_key(id)), "{waiting:?} wait for nothing");
        }
    }

    /// Runs every turn to its end without further commands.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            let Some(id) = self.tasks.keys().next().cloned() else { return };
            self.go(&id, End::Done);
            self.check();
        }
        panic!("it never ends: {:?}", self.tasks);
    }
}

proptest! {
    #[test]
    fn looks_begin_in_order_and_no_slow_group_holds_up_another(steps in vec(step(), 0..120)) {
        let mut world = World::new();
        for step in steps {
            let pick = |world: &World, pick: &Pick| {
                let tasks: Vec<_> = world.tasks.keys().cloned().collect();
                (!tasks.is_empty()).then(|| pick.get(&tasks).clone())
            };
            match step {
                Step::Command(number) => world.command(number),
                Step::Change(changed) => world.reconcile_due(&changed),
                Step::Go(task, end) => if let Some(id) = pick(&world, &task) {
                    world.go(&id, end);
                    // A reconcile that ended wakes the finisher.
                    world.reconcile_due(&[]);
                },
                Step::Break(task) => if let Some(id) = pick(&world, &task) {
                    world.tasks.remove(&id);
                    world.state.break_off(&id, world.now);
                    world.reconcile_due(&[]);
                },
                Step::Progress(seconds) => {
                    world.now += Duration::from_secs(seconds.into());
                    world.reconcile_due(&[]);
                }
            }
            world.check();
        }
        // No group is forgotten: all due reconciles take place, and then no group waits.
        world.now += Duration::from_secs(3_600);
        world.reconcile_due(&[]);
        world.settle();
        prop_assert_eq!(world.state.work_queue.waiting(), []);
        prop_assert_eq!(world.state.work_queue.free(), SLOTS);
    }
}

#[test]
fn slots_are_not_held_behind_slow_commands_and_their_groups_are_looked_at_in_turn() {
    let mut world = World::new();
    for number in 0..4 {
        world.command(number);
        world.go(&group(number), End::Done);
    }
    world.reconcile_due(&[0, 1, 2, 3, 4]);
    assert_eq!(world.tasks.get(&group(4)), Some(&At::Boundary), "it is looked at");
    world.go(&group(4), End::Done);
    world.go(&group(2), End::Done);
    world.go(&group(2), End::Done);
    assert_eq!(world.tasks[&group(2)], At::Reconcile, "a slot was free at its turn's end");
    world.command(3);
    world.go(&group(3), End::Done);
    world.go(&group(3), End::Done);
    assert_eq!(world.tasks[&group(3)], At::Command, "none was");
    assert_eq!(world.state.work_queue.waiting(), [0, 1, 3].map(group), "they keep their places");
    world.settle();
}
