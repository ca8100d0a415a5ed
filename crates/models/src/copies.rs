//! The copies of the program. Each holds a command of the delete-rule crate. Each call of the command is one step,
//! which the world ([`crate::writes`]) executes on its current state. This file must never make a decision itself.

use std::collections::VecDeque;

use delete_rule::{
    Entry, GroupMachines,
    steps::{
        Carry, Details, Effect, Failure, MarkCall, MarkOutcome, Marked, Outcome, RetryBudget, RetryPolicy, Steps as _,
    },
};

use crate::{
    caches::Known,
    program::Program,
    saved::{Call, Command, SavedCommand},
    small::{self, Failed, Small},
    step::Step,
    variant::{Counts, PlaceTests, Precondition, UnmarkTests},
    world::{Listing, Memory, Past, Phase, Set, World},
    writes::Write,
};

impl Program<'_> {
    /// Finds all steps that the copies may take next.
    pub(crate) fn steps(&self, world: &World, found: &mut dyn FnMut(Step, World)) {
        for copy in 0..world.copies.len() {
            let Some(held) = SavedCommand::of(world.copies[copy].held) else { continue };
            if held.calls.is_empty() {
                self.go_on(world, copy, &held, None, Step::Count(copy), found);
            }
            for index in 0..held.calls.len() {
                self.perform(world, copy, &held, index, found);
            }
        }
        self.steps_of_finisher(world, found);
    }

    /// Continues wanted entries, as the finisher of an idle copy does.
    pub(crate) fn carry_on(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        then.copies[copy] = Memory::default();
        let version = then.copies[copy].view(world);
        let uids = small::uids(world.in_phase(Phase::Wanted));
        let carry = Carry::new(self.core(), version, uids, Vec::new(), self.size_bounds(), Marked::default());
        let command = Command::CarryOn(carry);
        // The view and the first call are one step.
        self.begin(&then, copy, command, Step::CarryOn(copy), &mut |_, begun| {
            let Some(held) = SavedCommand::of(begun.copies[copy].held) else { return };
            for index in 0..held.calls.len() {
                self.perform(&begun, copy, &held, index, found);
            }
        });
    }

    pub(crate) fn begin(
        &self,
        world: &World,
        copy: usize,
        command: Command,
        step: Step,
        found: &mut dyn FnMut(Step, World),
    ) {
        self.go_on(world, copy, &SavedCommand { command, calls: Vec::new() }, None, step, found);
    }

    /// Continues a command after the outcome of a call, once for each snapshot that the Machine cache may show.
    pub(crate) fn go_on(
        &self,
        world: &World,
        copy: usize,
        held: &SavedCommand,
        outcome: Option<&Outcome<Small>>,
        step: Step,
        found: &mut dyn FnMut(Step, World),
    ) {
        let now = world.pasts.last();
        let (then, was_asked) = self.run(world, copy, held.clone(), outcome.cloned(), now);
        found(step, then);
        if was_asked {
            let pasts = world.pasts.all();
            for past in &pasts[..pasts.len() - 1] {
                let (other, _) = self.run(world, copy, held.clone(), outcome.cloned(), *past);
                if other != then {
                    found(step.of_old_cache(), other);
                }
            }
        }
    }

    /// Continues a command with one of these snapshots of the cache. Also returns true if the command read the cache.
    /// Reads are answered at once.
    fn run(
        &self,
        world: &World,
        copy: usize,
        mut held: SavedCommand,
        outcome: Option<Outcome<Small>>,
        past: Past,
    ) -> (World, bool) {
        let mut then = *world;
        // A mark and the reads that it relies on are one step.
        let mut marking = match &outcome {
            Some(Outcome::Mark(entry, outcome)) if !matches!(outcome, MarkOutcome::Set(_)) => Some(entry.clone()),
            _ => None,
        };
        let mut outcomes: VecDeque<_> = outcome.into_iter().collect();
        let mut was_asked = false;
        loop {
            for outcome in outcomes.drain(..) {
                held.command.took(outcome);
                Self::note(&mut then, copy, held.command.effects());
            }
            let known = Known::new(self, &then, copy, past);
            let calls = held.command.next(&known);
            was_asked |= known.was_asked.get();
            let memory = known.memory.into_inner();
            then.copies[copy] = memory;
            Self::note(&mut then, copy, held.command.effects());
            for call in calls {
                was_asked |= matches!(call, Call::List(_)) && self.rule.counts == Counts::ByCache;
                if let Call::Mark(entry, call) = &call
                    && marking.as_ref() == Some(entry)
                {
                    outcomes.push_back(Outcome::Mark(entry.clone(), self.set_mark(&mut then, copy, entry, call)));
                    marking.take_if(|_| matches!(call, MarkCall::Set(_)));
                    continue;
                }
                match self.answer(&mut then, copy, &held.command, &call, past) {
                    Some(outcome) => outcomes.push_back(outcome),
                    None => held.calls.push(call),
                }
            }
            if outcomes.is_empty() {
                break;
            }
        }
        self.hold(&mut then, copy, held, past);
        (then, was_asked)
    }

    /// Returns the outcome of a call that isn't a step of its own: a read that only this copy relies on, and that could
    /// also happen a moment later.
    fn answer(
        &self,
        world: &mut World,
        copy: usize,
        command: &Command,
        call: &Call,
        past: Past,
    ) -> Option<Outcome<Small>> {
        match call {
            Call::Read(named) => Some(Outcome::Life(named.uid, Ok(world.life(named.uid.into())))),
            Call::ReadDetails(named) => {
                let machine = usize::from(named.uid);
                let life = world.life(machine);
                let is_alive = life == delete_rule::Life::Alive;
                let has_joined = is_alive && world.knows_node(copy, machine);
                let version = is_alive.then(|| Self::read_version(world, copy, machine));
                // A named Machine isn't in the log, so that its mark belongs to no entry.
                Some(Outcome::Details(named.uid, Ok(Details { life, has_joined, version, ticket: None })))
            }
            Call::ReadVersion(entry) => {
                let machine = usize::from(entry.uid);
                let version = world.machines[machine].exists().then(|| Self::read_version(world, copy, machine));
                Some(Outcome::Version(entry.clone(), version))
            }
            // No version is skipped while the size is lowered or entries are taken back.
            Call::ReadGroup(RetryPolicy::Once | RetryPolicy::Of(RetryBudget::Lower | RetryBudget::TakeBack)) => {
                Some(Outcome::Group(Ok(world.view_of(copy))))
            }
            Call::Pause(row, Failed(failure)) => Some(Outcome::Paused(*row, *failure != Failure::Final)),
            Call::List(_) => {
                let is_step = self.rule.place_tests == PlaceTests::Size && world.copies[copy].asked > 0;
                if is_step || self.lowering_after(world, copy, &mut command.clone()).is_some() {
                    return None;
                }
                Some(self.list(world, copy, past))
            }
            Call::Mark(entry, call) if Self::marks_nothing(world, copy, command, entry) => {
                Some(Outcome::Mark(entry.clone(), self.set_mark(world, copy, entry, call)))
            }
            Call::ReadGroup(_)
            | Call::ReadSize(_)
            | Call::WriteLog { .. }
            | Call::Lower { .. }
            | Call::Resize { .. }
            | Call::Mark(..)
            | Call::Delete { .. }
            | Call::WriteReplaced { .. }
            | Call::Unmark { .. } => None,
        }
    }

    /// Returns true if the call for a mark changes nothing and so is only a read: the Machine is gone for good, or a
    /// finisher continues with a Machine that already has its mark.
    fn marks_nothing(world: &World, copy: usize, command: &Command, entry: &Entry<Small>) -> bool {
        let machine = world.machines[usize::from(entry.uid)];
        let is_marked = machine.mark == world.copies[copy].ticket(entry.ticket);
        !machine.exists() || (is_marked && matches!(command, Command::CarryOn(_)))
    }

    /// Returns the write of a smaller size that follows a list at once, so that both are one step.
    fn lowering_after(&self, world: &World, copy: usize, command: &mut Command) -> Option<Call> {
        let mut world = *world;
        let past = world.pasts.last();
        command.took(self.list(&mut world, copy, past));
        let known = Known::new(self, &world, copy, past);
        command.next(&known).into_iter().find(|call| matches!(call, Call::Lower { .. }))
    }

    fn list(&self, world: &mut World, copy: usize, past: Past) -> Outcome<Small> {
        let past = if self.rule.counts == Counts::ByCache { past } else { world.pasts.last() };
        let listing = match world.copies[copy].listed.take() {
            Some(listing) => listing,
            None => Self::listing(world, copy, past),
        };
        let without_node = listing.hanging.iter().map(|machine| small::named(machine, Set(0))).collect();
        let (alive, draining) = (small::uids(listing.alive), small::uids(listing.draining));
        // A MachinePool counts its instances.
        let all = listing.alive | listing.draining | listing.hanging;
        let instances = self.bounds.is_pool.then(|| usize::try_from(all.len()).unwrap_or_default());
        Outcome::Listed(Ok(GroupMachines { alive, draining, without_node, instances }))
    }

    /// Lists the Machines.
    pub(crate) fn listing(world: &mut World, copy: usize, past: Past) -> Listing {
        Self::may_know_all(world, copy);
        let with_node = past.with_node | world.shown_nodes[copy];
        let (draining, hanging) = (past.deleting & with_node, past.deleting.without(with_node));
        Listing { alive: past.alive, draining, hanging }
    }

    /// Resets the record of Machines that a count of this copy can't know, unless another copy counts Machines.
    fn may_know_all(world: &mut World, copy: usize) {
        let mut others = world.copies.iter().enumerate().filter(|(other, _)| *other != copy);
        if others.all(|(_, memory)| !memory.is_counting) && world.ledger.places == 0 {
            world.ledger.came = Set(0);
        }
    }

    fn read_version(world: &mut World, copy: usize, machine: usize) -> u8 {
        let memory = &mut world.copies[copy];
        memory.is_read = memory.is_read | Set::one(machine);
        memory.versions[machine]
    }

    fn note(world: &mut World, copy: usize, effects: Vec<Effect<Small>>) {
        for effect in effects {
            if let Effect::Answer(caller, Ok(())) = effect {
                let Memory { named, joined, .. } = world.copies[copy];
                let machines = if caller == 0 { named } else { joined };
                world.ledger.accepted = world.ledger.accepted | machines;
                world.tally.answer(machines);
            }
        }
    }

    /// Saves the copy's command until the next step. If the command waits for no call, the copy becomes idle.
    fn hold(&self, world: &mut World, copy: usize, held: SavedCommand, past: Past) {
        if held.calls.is_empty() {
            world.let_go(copy);
            return;
        }
        let logged = |memory: &Memory, log| {
            let (new, old) = (memory.log(log), world.log);
            let is_new = |one: usize| new[one].phase != Phase::None && new[one].ticket != old[one].ticket;
            let is_left = |one: usize| new[one].phase == Phase::None && old[one].phase == Phase::Wanted;
            (Set::of(is_new), Set::of(is_left))
        };
        let mut memory = world.copies[copy];
        let (mut to_log, mut refused) = (Set(0), Set(0));
        (memory.may_view, memory.is_counting) = (false, false);
        for call in &held.calls {
            match call {
                Call::WriteLog { log, .. } => {
                    let (new, left) = logged(&memory, log);
                    (to_log, refused) = (to_log | new, refused | left);
                    memory.may_view = true;
                }
                Call::ReadGroup(RetryPolicy::Of(RetryBudget::Log)) => memory.may_view = true,
                Call::Resize { .. } | Call::ReadSize(_) | Call::List(_) => {
                    memory.is_counting = memory.asked > 0;
                }
                _ => {}
            }
        }
        // Another client's smaller size removed the Machine after the command had seen it alive.
        let early = to_log.without(memory.to_log) & past.alive & world.ledger.taken;
        world.ledger.early = world.ledger.early | early;
        let is_spared = |one: usize| world.log[one].never_joined && !world.may_be_marked(copy, one);
        let refused = refused.without(memory.refused).without(Set::of(is_spared));
        if self.bounds.admits_known {
            world.ledger.others += refused.len();
        }
        (memory.to_log, memory.refused) = (to_log, memory.refused | refused);
        if self.rule.place_tests == PlaceTests::SizeAfterList
            && memory.asked > 0
            && held.calls.iter().any(|call| matches!(call, Call::ReadSize(_)))
        {
            world.copies[copy] = memory;
            let now = world.pasts.last();
            memory.listed = Some(Self::listing(world, copy, now));
        }
        memory.held = held.number(self.rule);
        world.copies[copy] = memory;
    }

    /// Makes one of the calls that a copy waits for.
    fn perform(
        &self,
        world: &World,
        copy: usize,
        held: &SavedCommand,
        index: usize,
        found: &mut dyn FnMut(Step, World),
    ) {
        let mut rest = held.clone();
        let call = rest.calls.remove(index);
        let mut then = *world;
        match &call {
            Call::Mark(entry, call) => {
                self.perform_mark(world, copy, &rest, (entry, call), found);
            }
            Call::Unmark { name, ticket, version } => {
                let machine = usize::from(*name);
                if self.may_unmark(world, copy, machine, (*ticket, *version)) {
                    self.mark(&mut then, machine, 0);
                }
                let outcome = Outcome::Unmarked(*name, Ok(()));
                self.go_on(&then, copy, &rest, Some(&outcome), Step::Unmark(copy, machine), found);
            }
            Call::ReadGroup(_) => {
                let outcome = Outcome::Group(Ok(then.view_of(copy)));
                self.go_on(&then, copy, &rest, Some(&outcome), Step::ReadGroup(copy), found);
            }
            Call::ReadSize(writer) => {
                let is_own = world.sized_by == *writer;
                let sized_by = if is_own { delete_rule::SizedBy::This } else { delete_rule::SizedBy::Another };
                // A count for this version comes later.
                Self::may_know_all(&mut then, copy);
                let outcome = Outcome::Size(Ok((then.view_of(copy), sized_by)));
                self.go_on(&then, copy, &rest, Some(&outcome), Step::ReadGroup(copy), found);
            }
            Call::List(_) => {
                let mut lowering = rest.clone();
                if let Some(call) = self.lowering_after(world, copy, &mut lowering.command) {
                    if let Some(write) = Write::of(&call) {
                        self.write(world, copy, &lowering, &write, found);
                    }
                    return;
                }
                let outcome = self.list(&mut then, copy, world.pasts.last());
                self.go_on(&then, copy, &rest, Some(&outcome), Step::Count(copy), found);
            }
            call => {
                if let Some(write) = Write::of(call) {
                    self.write(world, copy, &rest, &write, found);
                }
            }
        }
    }

    /// Settles the calls whose outcome is already certain: marks of Machines that are gone, removals of marks that fail
    /// because the Machine has changed, and writes that are bound to fail. A decision may still read the state at any
    /// later time.
    pub(crate) fn settle(&self, world: &mut World) {
        for copy in 0..world.copies.len() {
            while let Some(held) = SavedCommand::of(world.copies[copy].held) {
                let settled = (0..held.calls.len()).find_map(|index| self.settled(world, copy, &held, index));
                let Some((rest, outcome)) = settled else { break };
                (*world, _) = self.run(world, copy, rest, Some(outcome), world.pasts.last());
            }
        }
    }

    /// Returns the outcome of a call if it is certain, and the command without that call.
    fn settled(
        &self,
        world: &World,
        copy: usize,
        held: &SavedCommand,
        index: usize,
    ) -> Option<(SavedCommand, Outcome<Small>)> {
        let is_tested = self.rule.precondition == Precondition::Generation && self.rule.logs_first;
        let fails = |write: &Write<'_>| is_tested && !self.passes(world, copy, write);
        let conflict = Outcome::Written(Err(Failed(Failure::Conflict)));
        let mut rest = SavedCommand::clone(held);
        let outcome = match rest.calls.remove(index) {
            Call::Mark(entry, call) if !world.machines[usize::from(entry.uid)].exists() => {
                let outcome = self.set_mark(&mut world.clone(), copy, &entry, &call);
                Outcome::Mark(entry, outcome)
            }
            Call::Unmark { name, ticket, version } if !self.may_unmark(world, copy, name.into(), (ticket, version)) => {
                Outcome::Unmarked(name, Ok(()))
            }
            Call::List(_) => {
                let lowering = self.lowering_after(world, copy, &mut rest.command)?;
                Write::of(&lowering).filter(fails)?;
                conflict
            }
            call => {
                Write::of(&call).filter(fails)?;
                conflict
            }
        };
        Some((rest, outcome))
    }

    /// Returns true if the test of the patch that removes a mark passes.
    fn may_unmark(&self, world: &World, copy: usize, machine: usize, (ticket, version): (u8, u8)) -> bool {
        let memory = &world.copies[copy];
        let tests_version = self.rule.unmark_tests == UnmarkTests::Version;
        let is_unchanged = !tests_version || memory.versions[machine] == version;
        is_unchanged && world.machines[machine].mark == memory.ticket(ticket)
    }
}

impl World {
    /// Returns the group as a copy reads it.
    pub(crate) fn view_of(&mut self, copy: usize) -> small::View {
        let mut memory = self.copies[copy];
        let view = memory.view(self);
        self.copies[copy] = memory;
        view
    }

    /// Drops the command of a copy that has ended or crashed.
    pub(crate) fn let_go(&mut self, copy: usize) {
        if self.sized_by == self.copies[copy].writer {
            self.sized_by = 0;
        }
        self.copies[copy] = Memory::default();
    }
}
