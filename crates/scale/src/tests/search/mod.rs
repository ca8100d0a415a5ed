//! An exhaustive search, within bounds, of what a DeleteNodes can do: two copies of the program, a caller that names
//! Machines again, controllers whose views lag, and others that disturb them. The command is the code that ships: a copy's
//! state is the list of its events, by which it runs again. An end with a harm fails unless "What can go wrong" in
//! docs/design/writes.md has its cause.

mod replay;
mod world;

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

use self::{
    replay::{Event, Logs},
    world::{Bounds, Call, Shown, World},
};

/// The harms, each with the number of its cause in "What can go wrong".
const HARMS: &str = "unnamed went: watch lags (5) | unnamed went: replaced before (3) | replaced: copy ended (1) | \
                     replaced: size refused (2) | replaced: DELETE unanswered (4) | replaced: deleted by another (4) | \
                     without a cause";
/// The bounds that each run searches, and the further ones of a search by hand.
const SMALL: &str = "--nodes 3 --deletes 1
--nodes 2 --deletes 1 --crashes 1
--nodes 2 --deletes 1 --refusals 1
--nodes 2 --deletes 1 --joins 1
--nodes 2 --deletes 1 --lags
--nodes 3 --copies 1 --deletes 1 --batch 2
--nodes 2 --deletes 1 --foreign-deletes 1
--nodes 3 --copies 1 --deletes 1 --batch 2 --hangs 1 --joins 1 --prompt";
const WIDE: &str = "--bare --nodes 2 --copies 1 --deletes 1
--nodes 3 --deletes 1 --lost-answers 1
--nodes 2 --copies 1 --deletes 2";

#[test]
fn no_end_has_a_harm_without_a_cause() {
    search(SMALL);
}

/// `cargo test --profile simulation -p scale --lib -- --ignored --nocapture wider_bounds`, for other bounds with
/// `SEARCH="--nodes 3 --deletes 2"`.
#[test]
#[ignore = "takes minutes"]
fn no_end_has_a_harm_without_a_cause_in_wider_bounds() {
    search(&std::env::var("SEARCH").unwrap_or_else(|_| format!("{SMALL}\n{WIDE}")));
}

/// Searches all of these bounds, and prints a table of the ends with each harm.
fn search(rows: &str) {
    println!("| bounds | states | {HARMS} |");
    for row in rows.lines() {
        let (search, ends) = Search::run(Bounds::parse(row));
        println!("| `{row}` | {} | {} |", search.states.len(), ends.map(|count| count.to_string()).join(" | "));
        assert_eq!(ends[6], 0, "{row}:\n{}", search.trace());
    }
}

struct Search {
    logs: Logs,
    /// All states, each with the step to it and the position of the one before it.
    states: Vec<(World, &'static str, usize)>,
}

impl Search {
    /// Visits all states. Returns the number of ends with each harm, up to the first one without a cause.
    fn run(bounds: Bounds) -> (Self, [usize; 7]) {
        let (mut logs, mut start) = (Logs::new(bounds), World::new(bounds));
        for copy in 0..bounds.of("copies") {
            start.copies[copy].log = logs.then(0, Event::Watch(start.now));
        }
        let mut search = Self { logs, states: vec![(start, "", 0)] };
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let (mut seen, mut ended, mut ends, mut at) = (HashSet::new(), HashSet::new(), [0; 7], 0);
        while at < search.states.len() {
            let world = search.states[at].0.clone();
            let is_idle = world.copies.iter().all(|copy| !search.logs.lists[copy.log].outcome.is_running);
            let is_end = world.tally.fault.is_some() || is_idle && world.is_at_rest();
            let Shown { alive, deleting, gone, size, .. } = world.now;
            if is_end && ended.insert(hasher.hash_one((alive, deleting, gone, size, world.tally))) {
                let harms = world.harms();
                ends.iter_mut().zip(harms).for_each(|(count, is)| *count += usize::from(is));
                if harms[6] {
                    search.states.truncate(at + 1);
                    break;
                }
            }
            let mut found = world.environment(is_idle);
            for copy in (0..2).filter(|copy| world.copies[*copy].log != 0) {
                search.steps_of(&world, copy, &mut found);
            }
            for (step, mut then) in found {
                // One order of the copies stands for both.
                then.copies.sort_unstable();
                if seen.insert(hasher.hash_one(&then)) {
                    search.states.push((then, step, at));
                }
            }
            at += 1;
        }
        (search, ends)
    }

    /// Describes the steps to the last state.
    fn trace(&self) -> String {
        let (mut lines, mut at) = (Vec::new(), self.states.len() - 1);
        while at > 0 {
            let (world, step, before) = &self.states[at];
            let events = world.copies.map(|copy| self.logs.lists[copy.log].events.last());
            lines.push(format!("{step}\n    {world:?}\n    {events:?}"));
            at = *before;
        }
        lines.reverse();
        lines.join("\n")
    }

    /// Finds the steps of a copy, its callers and its calls.
    fn steps_of(&mut self, world: &World, copy: usize, found: &mut Vec<(&'static str, World)>) {
        let (log, logs) = (world.copies[copy].log, &mut self.logs);
        let (outcome, shown) = (logs.lists[log].outcome.clone(), logs.lists[log].shown);
        let (is_running, is_idle) = (outcome.is_running, outcome.calls.is_empty());
        let only_deletes = outcome.calls.iter().all(|call| matches!(call, Call::Delete(.., false)));
        let mut next = |step, mut then: World, event| {
            then.copies[copy].log = logs.then(log, event);
            let now = &logs.lists[then.copies[copy].log].outcome;
            then.tally.accepted |= now.accepted;
            if event == Event::Wait && now.is_running && now.calls == outcome.calls && only_deletes {
                then.note_waiting(!is_idle);
            }
            found.push((step, then));
        };
        if shown != world.now && (is_running || !world.asks(&world.now).is_empty()) {
            next("a copy sees all objects", world.clone(), Event::Watch(world.now));
        }
        for (at, call) in outcome.calls.iter().copied().enumerate() {
            let (mut done, lost) = (world.clone(), Event::Answer(at, 0, Shown::default()));
            let (code, objects) = done.carry_out(copy, call);
            next("a call is answered", done, Event::Answer(at, code, objects));
            if let Some(mut then) = world.spend("lost-answers") {
                next("a call is lost", then.clone(), lost);
                if call.writes() {
                    then.note_failed(copy, call, false);
                    then.carry_out(copy, call);
                    next("a call is done without an answer", then, lost);
                }
            }
            if let Some(mut then) = world.spend("refusals") {
                then.note_failed(copy, call, true);
                next("a call is refused", then, Event::Answer(at, 403, Shown::default()));
            }
        }
        let waits = if is_idle { Some(world.clone()) } else { world.spend("hangs") };
        if let Some(then) = waits.filter(|_| is_running) {
            next("time passes", then, Event::Wait);
        }
        if !is_running || !is_idle && only_deletes && world.left.of("join") > 0 {
            for (command, then) in world.asks(&shown) {
                next("a command begins", then, Event::Ask(command));
            }
        }
        let Some(crashed) = world.spend("crashes").filter(|_| is_running) else { return };
        for call in outcome.calls.iter().copied().filter(Call::writes).map(Some).chain([None]) {
            let mut then = crashed.clone();
            let _ = call.map(|call| then.carry_out(copy, call));
            then.crash(copy);
            // One that starts sees what there is.
            then.copies[copy].log = self.logs.then(0, Event::Watch(then.now));
            found.push((if call.is_some() { "a copy ends after its call" } else { "a copy ends" }, then));
        }
    }
}
