//! The requests that a copy receives: each becomes a command of the delete-rule crate.

use delete_rule::{
    Request,
    steps::{Decrease, Deletion, Resize},
};

use crate::{
    program::Program,
    saved::{Command, SavedCommand},
    small::{self, Small},
    step::Step,
    variant::PlaceTests,
    world::{Memory, Set, World},
};

impl Program<'_> {
    /// DeleteNodes arrives at an idle copy, which views the group and the Machines.
    pub(crate) fn ask(&self, world: &World, copy: usize, named: Set, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        then.copies[copy] = Memory { named, ..Memory::default() };
        for request in Self::requests(world, copy, named) {
            self.begin(&then, copy, self.deletion(request), Step::Ask(copy, named), found);
        }
    }

    /// DeleteNodes arrives at a copy that carries out another one, and joins that if it is open.
    pub(crate) fn join(&self, world: &World, copy: usize, named: Set, found: &mut dyn FnMut(Step, World)) {
        let Some(held) = SavedCommand::of(world.copies[copy].held) else { return };
        let Command::Delete(deletion) = &held.command else { return };
        if !deletion.is_open() || !world.copies[copy].joined.is_empty() {
            return;
        }
        let mut then = *world;
        then.copies[copy].joined = named;
        for request in Self::requests(world, copy, named) {
            let mut held = SavedCommand::clone(&held);
            let Command::Delete(deletion) = &mut held.command else { return };
            deletion.join([(1, request, 0)]);
            self.go_on(&then, copy, &held, None, Step::JoinBatch(copy, named), found);
        }
    }

    /// Returns the requests that name these Machines. A Machine whose Node the copy doesn't know yet may be named by
    /// its Node, or as one that never joined.
    fn requests(world: &World, copy: usize, named: Set) -> impl Iterator<Item = Request<Small>> {
        let pending = named & world.living() & Set::of(|one| !world.machines[one].has_node);
        let unsure =
            named & world.living() & Set::of(|one| world.machines[one].has_node && !world.knows_node(copy, one));
        (0..=unsure.0).map(Set).filter(move |some| some.without(unsure).is_empty()).map(move |some| {
            let machines = named.iter().map(|machine| small::named(machine, pending | some)).collect();
            Request { machines, ..Request::default() }
        })
    }

    /// DeleteNodes names `count` placeholders.
    pub(crate) fn ask_places(&self, world: &World, copy: usize, count: i8, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        then.budget.placeholders -= 1;
        then.copies[copy] = Memory { asked: count, ..Memory::default() };
        let request = Request { replicas: usize::try_from(count).unwrap_or_default(), ..Request::default() };
        let command = self.deletion(request);
        if self.rule.place_tests == PlaceTests::SizeAfterList {
            then.copies[copy].listed = Some(Self::listing(&mut then, copy, world.pasts.last()));
            let held = SavedCommand { command, calls: Vec::new() };
            then.copies[copy].held = held.number(self.rule);
            found(Step::AskPlaces(copy, count), then);
            return;
        }
        self.begin(&then, copy, command, Step::AskPlaces(copy, count), found);
    }

    /// DeleteNodes names Machines and `count` placeholders.
    pub(crate) fn ask_both(
        &self,
        world: &World,
        copy: usize,
        (named, count): (Set, i8),
        found: &mut dyn FnMut(Step, World),
    ) {
        let mut then = *world;
        then.copies[copy] = Memory { named, asked: count, ..Memory::default() };
        for request in Self::requests(world, copy, named) {
            let request = Request { replicas: usize::try_from(count).unwrap_or_default(), ..request };
            self.begin(&then, copy, self.deletion(request), Step::AskBoth(copy, named, count), found);
        }
    }

    fn deletion(&self, request: Request<Small>) -> Command {
        Command::Delete(Box::new(Deletion::new(self.core(), [(0, request, 0)])))
    }

    /// DecreaseTargetSize lowers the size by one.
    pub(crate) fn ask_less(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        then.budget.decreases -= 1;
        then.copies[copy] = Memory { asked: 1, ..Memory::default() };
        let version = then.copies[copy].view(world);
        let decrease = Decrease::new(self.core(), version, -1, self.size_bounds(), 0);
        self.begin(&then, copy, Command::Decrease(decrease), Step::AskLess(copy), found);
    }

    /// IncreaseSize raises the size by one.
    pub(crate) fn ask_more(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        then.budget.increases -= 1;
        then.copies[copy] = Memory::default();
        let version = then.copies[copy].view(world);
        let increase = Resize::increase(self.core(), version, 1, self.size_bounds(), Some(0));
        self.begin(&then, copy, Command::Increase(increase), Step::AskMore(copy), found);
    }
}
