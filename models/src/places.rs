//! Commands that name placeholders: replicas that have no Machine, or whose Machine is being deleted and has no Node.
//! [`delete_rule`] decides: what is accepted first, and then how far the size comes down for what has no Machine.

use delete_rule::{Fate, Request, Seen, SizedBy, Spec};

use crate::{
    decide::NEW,
    model::Step,
    program::Program,
    small::{self, Listed, Log},
    variant::{Counts, PlaceTests},
    world::{At, Count, Entry, Fault, Memory, Past, Phase, Places, Set, World},
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
            At::Counting if memory.places.is_unknown => self.clear_up(world, copy, found),
            At::Counting => self.begin_count(world, copy, found),
            At::HalfCounted => self.end_count(world, copy, found),
            At::Counted if !self.passes_for_places(world, memory) => self.count_again(world, copy, found),
            At::Counted => self.lower_places(world, copy, found),
            At::Idle | At::Viewed | At::Logged | At::TakingBack => {}
        }
    }

    /// A command finds what became of its write whose answer was lost.
    fn clear_up(&self, world: &World, copy: usize, found: &mut dyn FnMut(Step, World)) {
        let places = world.copies[copy].places;
        let seen = Spec { uid: &(), generation: 0, replicas: places.unknown_from.into() };
        let since = i64::from(places.writes_since);
        let now = Spec { uid: &(), generation: 1 + since, replicas: world.replicas.into() };
        let to = i32::from(places.unknown_from - places.to_lower);
        let sized_by = if since == 0 { SizedBy::This } else { SizedBy::Another };
        let mut then = *world;
        then.copies[copy] = match self.core().fate(&seen, &now, to, sized_by) {
            // With several writes since, a counted one may be the first of them: where nobody knows, the caller hears so.
            Fate::NotDone if since == 0 => {
                let places = Places { is_unknown: false, has_failed: true, to_lower: 0, ..places };
                Memory { at: At::Counting, places, ..Memory::default() }
            }
            Fate::Done | Fate::NotDone | Fate::Unknown => Memory::default(),
        };
        found(Step::ClearUp(copy), then);
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
            let unknown_from = world.replicas;
            let places = Places { lowered, is_unknown: true, unknown_from, writes_since: 0, ..places };
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
            soft: world.logged() & Set::of(|machine| world.log[machine].is_soft),
            wanted: world.in_phase(Phase::Wanted),
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
        if self.rule.place_tests != PlaceTests::SizeAfterList {
            Self::counts_what_came(world, copy);
        }
        let is_counted = self.rule.counts != Counts::Once || !places.has_failed;
        let listed = if is_counted { listed_of(count) } else { Listed::default() };
        let log = log_of(world, count);
        let is_fresh = self.rule.place_tests != PlaceTests::Size || world.copies[copy].is_fresh;
        let counted = Memory {
            at: At::Counted,
            is_fresh,
            viewed_log: count.log,
            viewed_replicas: Some(count.size),
            ..Memory::default()
        };
        world.copies[copy] = if places.is_accepted {
            self.give_up(counted, places, count, (&log, &listed))
        } else {
            self.accept_places(counted, places, count, (&log, &listed))
        };
    }

    /// The size without what is left of a request, or its end.
    fn give_up(&self, counted: Memory, places: Places, count: Count, (log, listed): (&Log, &Listed)) -> Memory {
        let left = self.core().placeholders(log, count.size.into(), listed, 0);
        let asked =
            delete_rule::Places { replicas: number(places.asked), instances: 0, from: places.first_size.into() };
        let to = self.core().give_up(log, count.size.into(), self.size_bounds(), left, asked);
        let to_lower = to.map_or(0, |to| i32::from(count.size) - to);
        if to_lower == 0 {
            return Memory::default();
        }
        Memory { places: Places { to_lower: i8::try_from(to_lower).unwrap_or(i8::MAX), ..places }, ..counted }
    }

    /// What a request comes to when it is decided: the Machines that it has logged, or the size that it writes.
    fn accept_places(&self, counted: Memory, places: Places, count: Count, (log, listed): (&Log, &Listed)) -> Memory {
        let came_down = i32::from(places.first_size - count.size);
        let seen = Seen {
            log,
            replicas: count.size.into(),
            bounds: self.size_bounds(),
            lives: &delete_rule::Map::<small::Small, _>::default(),
            joined: &small::Uids::default(),
            listed,
            counts_deleting: true,
            given_up: delete_rule::given_up(log, listed, came_down, 0),
        };
        let mut acceptance = self.core().acceptance(seen, NEW);
        let request = Request { replicas: number(places.asked), ..Request::default() };
        let Ok(accepted) = acceptance.accept(&request) else { return Memory::default() };
        let rest = i8::try_from(accepted.replicas).unwrap_or(i8::MAX);
        let named = small::set(accepted.without_node.iter().map(|named| named.uid));
        if named.is_empty() {
            let places = Places { asked: rest, first_size: count.size, is_accepted: true, ..places };
            return self.give_up(counted, places, count, (log, listed));
        }
        let (done, new) = acceptance.log().map_or((Set(0), Set(0)), Self::new_in);
        let places = Places { rest, ..places };
        Memory { at: At::Viewed, named, done, counted: new, places, viewed_replicas: None, ..counted }
    }
}

fn listed_of(count: Count) -> Listed {
    let without_node = count.hanging.iter().map(|machine| small::named(machine, Set(0))).collect();
    Listed { alive: small::uids(count.there), without_node, ..Listed::default() }
}

/// The log as it was viewed: the present one, where group and list are of one moment.
fn log_of(world: &World, count: Count) -> Log {
    let entries = count.logged.iter().filter_map(|machine| {
        let phase = if count.wanted.has(machine) { Phase::Wanted } else { Phase::Lowered };
        let is_soft = count.soft.has(machine);
        small::entry(machine, Entry { phase, is_soft, ticket: world.log[machine].ticket, ..world.log[machine] })
    });
    Log::default().with(entries)
}

fn number(count: i8) -> usize {
    usize::try_from(count).unwrap_or_default()
}
