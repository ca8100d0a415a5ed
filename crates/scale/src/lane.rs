//! The order of commands: one at a time per group, in the order of their arrival, and concurrently across groups.
//! Adjacent deletes are one batch. It must never hold a lock across an await.

use std::{
    collections::{HashMap, VecDeque},
    mem,
};

use parking_lot::Mutex;
use rules::GroupId;

use super::command::{Command, Delete};

/// The maximum number of commands that wait for a group's turn.
pub(super) const MOST_WAITING: usize = 1_000;
/// The number of waiting commands from which on those whose callers are gone are looked for.
const FIRST_SWEEP: usize = 16;

/// The waiting commands of one group. A lane exists for as long as its task runs.
#[derive(Default)]
struct Lane {
    commands: VecDeque<Command>,
    /// The number of waiting commands at which those whose callers are gone are looked for next.
    sweep_at: usize,
}

/// The result of queueing a command.
#[derive(Default)]
pub(super) struct Enqueued {
    /// True if the lane is new and has to be run.
    pub(super) is_new: bool,
    /// The command, if too many wait already.
    pub(super) refused: Option<Command>,
    /// The waiting commands whose callers are gone. They are out of the lane.
    pub(super) gone: Vec<Command>,
}

impl Lane {
    /// Takes out the commands whose callers are gone, each time that as many have come as were left the last time. What
    /// a caller has sent would stay until its turn otherwise, and the server counts it no longer.
    fn sweep(&mut self, must: bool) -> Vec<Command> {
        if !must && self.commands.len() < self.sweep_at.max(FIRST_SWEEP) {
            return Vec::new();
        }
        let (gone, left): (VecDeque<_>, _) = mem::take(&mut self.commands).into_iter().partition(Command::is_abandoned);
        self.commands = left;
        self.sweep_at = (2 * self.commands.len()).min(MOST_WAITING);
        Vec::from(gone)
    }
}

/// The lanes of all groups.
#[derive(Default)]
pub(super) struct Lanes(Mutex<HashMap<GroupId, Lane>>);

impl Lanes {
    /// Returns the number of commands that wait for a turn of this group.
    #[cfg(test)]
    pub(super) fn waiting(&self, id: &GroupId) -> usize {
        self.0.lock().get(id).map_or(0, |lane| lane.commands.len())
    }

    /// Returns the number of groups that have something to do.
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Puts a command into its group's lane, if not too many wait there.
    pub(super) fn enqueue(&self, id: &GroupId, command: Command) -> Enqueued {
        let mut lanes = self.0.lock();
        let is_new = !lanes.contains_key(id);
        let lane = lanes.entry(id.clone()).or_default();
        let gone = lane.sweep(command.is_large());
        if lane.commands.len() >= MOST_WAITING {
            return Enqueued { is_new, refused: Some(command), gone };
        }
        lane.commands.push_back(command);
        Enqueued { is_new, refused: None, gone }
    }

    /// Returns the next command of a lane; the lane ends if there is none.
    pub(super) fn next(&self, id: &GroupId) -> Option<Command> {
        let mut lanes = self.0.lock();
        let command = lanes.get_mut(id)?.commands.pop_front();
        if command.is_none() {
            lanes.remove(id);
        }
        command
    }

    /// Removes a lane whose task has ended in the middle of a turn.
    pub(super) fn break_off(&self, id: &GroupId) {
        self.0.lock().remove(id);
    }

    /// Takes the deletes at the head of the lane.
    pub(super) fn more_deletes(&self, id: &GroupId) -> Vec<Delete> {
        let (mut lanes, mut deletes) = (self.0.lock(), Vec::new());
        let Some(lane) = lanes.get_mut(id) else { return deletes };
        while let Some(Command::Delete(_)) = lane.commands.front() {
            if let Some(Command::Delete(delete)) = lane.commands.pop_front() {
                deletes.push(delete);
            }
        }
        deletes
    }
}
