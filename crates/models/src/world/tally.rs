//! What has happened to Machines and sizes so far, whatever the rule: two rules are compared by it.

use super::{Life, SLOTS, Set, World};

/// The history that matters for an end state. It isn't kept unless rules are compared.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Tally {
    /// True if it is kept.
    pub is_kept: bool,
    /// The Machines that a command named.
    pub named: Set,
    /// The Machines that commands have named only as ones that never joined.
    pub bare: Set,
    /// The Machines whose command was answered OK.
    pub ok: Set,
    /// The number of Machines that were deleted with a Node and that no command had named.
    pub unnamed: u8,
    /// The number of Machines named as ones that never joined that were deleted with a Node.
    pub joined: u8,
    /// The size without any DeleteNodes or DecreaseTargetSize.
    pub due: i8,
    /// The number of sizes that somebody else has lowered.
    pub fewer: u8,
    /// The Machines that a controller took, or that were gone, before any command named them.
    pub over: Set,
    /// True if a Machine that was created since the beginning got its Node.
    pub late_join: bool,
    /// True if such a Machine was named, or deleted by somebody else.
    pub late_end: bool,
}

impl Tally {
    /// Notes that a command is answered OK.
    pub(crate) fn answer(&mut self, machines: Set) {
        if self.is_kept {
            self.ok = self.ok | machines;
        }
    }

    /// Notes a size that somebody has raised, or that somebody else has lowered.
    pub(crate) fn resize(&mut self, delta: i8) {
        if self.is_kept {
            self.due += delta;
            self.fewer += u8::from(delta < 0);
        }
    }

    /// Notes that a Machine got its Node.
    pub(crate) fn join(&mut self, is_new: bool) {
        self.late_join |= self.is_kept && is_new;
    }

    /// Notes that somebody names or deletes a Machine.
    pub(crate) fn end(&mut self, is_new: bool) {
        self.late_end |= self.is_kept && is_new;
    }
}

impl World {
    /// Notes that a command names Machines.
    pub(crate) fn name(&mut self, named: Set) {
        self.ledger.named = self.ledger.named | named;
        if self.tally.is_kept {
            let bare = Set::of(|one| self.machines[one].life == Life::Alive && !self.machines[one].has_node);
            self.tally.bare = (self.tally.bare | (named & bare)).without(named.without(bare));
            let over = Set::of(|one| self.machines[one].life == Life::Gone).without(self.tally.named);
            self.tally.over = self.tally.over | (named & over);
            self.tally.named = self.tally.named | named;
        }
    }

    /// Notes that a controller or a command begins to delete a Machine.
    pub(super) fn note_deletion(&mut self, machine: usize) {
        let deleted = self.machines[machine];
        // The Machines of an old MachineSet go in a rollout.
        if !self.tally.is_kept {
            return;
        }
        let is_named = self.tally.named.has(machine);
        self.tally.over = self.tally.over | if is_named { Set(0) } else { Set::one(machine) };
        if !deleted.has_node || deleted.is_old {
            return;
        }
        self.tally.unnamed += u8::from(!is_named);
        self.tally.joined += u8::from(self.tally.bare.has(machine));
    }

    /// Returns the lives of the Machines and the number of those that exist.
    #[must_use]
    pub fn lives(&self) -> ([Life; SLOTS], i8) {
        let there = Set::of(|machine| self.machines[machine].exists());
        (self.machines.map(|machine| machine.life), there.len())
    }
}
