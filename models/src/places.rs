//! Commands that name placeholders: replicas that have no Machine, or whose Machine is being deleted and has no Node.
//! [`Rule::place`](crate::rule::Rule::place) decides; here it is carried out on the world.

use crate::{
    model::Step,
    program::Program,
    rule::{Counts, Place, PlaceTests},
    world::{At, Count, Fault, Memory, Past, Phase, Places, Set, World},
};

impl Program<'_> {
    /// DeleteNodes of so many placeholders.
    pub(crate) fn ask_places(&self, world: &World, copy: usize, count: i8, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        then.budget.placeholders -= 1;
        let places = Places { asked: count, first_size: world.replicas, ..Places::default() };
        then.copies[copy] = Memory { at: At::Counting, places, ..Memory::default() };
        self.begin_count(&then, copy, &mut |_, then| found(Step::AskPlaces(copy, count), then));
    }

    /// A write has failed its test.
    pub(crate) fn count_again(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let mut then = *world;
        let places = Places { has_failed: true, to_lower: 0, ..world.copies[copy].places };
        then.copies[copy] = Memory { at: At::Counting, places, ..Memory::default() };
        self.begin_count(&then, copy, found);
    }

    pub(crate) fn steps_of_places(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let memory = world.copies[copy];
        match memory.at {
            At::Counting if memory.places.is_unknown && self.rule.knows_own_writes => {
                // Where somebody else has written since, nobody knows: the caller is told so.
                let then = Self::end(world, copy);
                found(Step::ClearUp(copy), then);
            }
            At::Counting => self.begin_count(world, copy, found),
            At::HalfCounted => self.end_count(world, copy, found),
            At::Counted if !self.passes_for_places(world, memory) => self.count_again(world, copy, found),
            At::Counted => self.lower_places(world, copy, found),
            At::Idle | At::Viewed | At::Logged | At::TakingBack => {}
        }
    }

    fn end(world: &World, copy: usize) -> World {
        let mut then = *world;
        then.copies[copy] = Memory::default();
        then
    }

    fn passes_for_places(&self, world: &World, memory: Memory) -> bool {
        match self.rule.place_tests {
            PlaceTests::Group => memory.is_fresh && memory.viewed_log == world.log_print(),
            PlaceTests::Size | PlaceTests::SizeAfterList => memory.viewed_replicas == Some(world.replicas),
        }
    }

    fn lower_places(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let places = world.copies[copy].places;
        let mut then = *world;
        then.replicas -= places.to_lower;
        then.ledger.size -= places.to_lower;
        then.ledger.places += places.to_lower;
        let lowered = places.lowered + places.to_lower;
        if lowered > places.asked {
            then.ledger.fault = Some(Fault::TooManyPlaces);
        }
        self.check_min(&mut then);
        then.deployment_changed(self.bounds.lag);
        if world.budget.lost_answers > 0 {
            let mut then = then;
            then.budget.lost_answers -= 1;
            let places = Places { lowered, is_unknown: true, to_lower: 0, ..places };
            then.copies[copy] = Memory { at: At::Counting, places, ..Memory::default() };
            found(Step::LowerPlaces(copy, world.copies[copy].places.to_lower, true), then);
        }
        then.copies[copy] = Memory::default();
        found(Step::LowerPlaces(copy, places.to_lower, false), then);
    }

    /// The Machines, as a fresh list or a cache has them.
    fn lists(&self, world: &World) -> Vec<Count> {
        let now = world.pasts.last();
        let pasts = if self.rule.counts == Counts::ByCache { world.pasts.all() } else { &[now] };
        let list = |past: &Past| Count {
            there: past.alive | (past.deleting & past.with_node),
            hanging: past.deleting.without(past.with_node),
            ..Count::default()
        };
        pasts.iter().map(list).collect()
    }

    fn with_group(world: &World, count: Count) -> Count {
        Count {
            logged: world.logged(),
            log: world.log_print(),
            soft: world.in_phase(Phase::Lowered) & Set::of(|machine| world.log[machine].is_soft),
            wanted: world.in_phase(Phase::Wanted).len(),
            size: world.replicas,
            ..count
        }
    }

    /// The MachineDeployment is viewed and the Machines are listed; where only the size is tested, one after the other.
    fn begin_count(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        for list in self.lists(world) {
            let mut then = *world;
            match self.rule.place_tests {
                PlaceTests::Group => self.decide(&mut then, copy, Self::with_group(world, list)),
                PlaceTests::Size => {
                    then.copies[copy].places.half = Self::with_group(world, Count::default());
                    then.copies[copy].at = At::HalfCounted;
                    then.copies[copy].is_fresh = true;
                }
                PlaceTests::SizeAfterList => {
                    Self::counts_what_came(&mut then, copy);
                    then.copies[copy].places.half = list;
                    then.copies[copy].at = At::HalfCounted;
                }
            }
            found(Step::Count(copy), then);
        }
    }

    fn end_count(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let half = world.copies[copy].places.half;
        for list in self.lists(world) {
            let mut then = *world;
            let count = match self.rule.place_tests {
                PlaceTests::Group | PlaceTests::SizeAfterList => Self::with_group(world, half),
                PlaceTests::Size => Count { there: list.there, hanging: list.hanging, ..half },
            };
            self.decide(&mut then, copy, count);
            found(Step::Count(copy), then);
        }
    }

    /// The Machines that have come before the list are counted.
    fn counts_what_came(world: &mut World, copy: usize) {
        let others = world.copies.iter().enumerate().filter(|(other, _)| *other != copy);
        let is_alone = others.into_iter().all(|(_, memory)| !matches!(memory.at, At::HalfCounted | At::Counted));
        if is_alone && world.ledger.places == 0 {
            world.ledger.came = Set(0);
        }
    }

    fn decide(&self, world: &mut World, copy: usize, count: Count) {
        let places = Places { half: Count::default(), ..world.copies[copy].places };
        let is_lowered =
            |machine: usize| world.log[machine].is_placeholder && world.log[machine].phase == Phase::Lowered;
        let lowered = Set::of(is_lowered).len();
        if self.rule.place_tests != PlaceTests::SizeAfterList {
            Self::counts_what_came(world, copy);
        }
        let viewed_log = count.log;
        let is_fresh = self.rule.place_tests != PlaceTests::Size || world.copies[copy].is_fresh;
        world.copies[copy] = match self.rule.place(count, places, lowered, self.bounds.min) {
            Place::Nothing | Place::Refused => Memory::default(),
            Place::Log(entries) => Memory {
                at: At::Viewed,
                named: entries,
                done: entries,
                counted: entries,
                is_fresh,
                viewed_log,
                places,
                ..Memory::default()
            },
            Place::Lower(fewer) => Memory {
                at: At::Counted,
                is_fresh,
                viewed_log,
                viewed_replicas: Some(count.size),
                places: Places { to_lower: fewer, ..places },
                ..Memory::default()
            },
        };
    }
}
