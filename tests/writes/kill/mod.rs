//! Kills the built program in the middle of its work. Ten Nodes are named; one of two copies is killed at some point of
//! their deletion and started again, and the command is repeated: exactly these ten must be gone. The size must be lowered
//! by ten, unless the copy that deleted them was killed: those for which it had no time to lower the size are replaced.
//!
//! A point is one write request to the API server, before or after it is carried out. Rounds have fixed seeds.
//! `KILL_ROUNDS` sets a number of rounds with new seeds, however long they take; `KILL_SEED` repeats a single one.
mod copy;
mod world;

use std::{io::Write as _, time::Instant};

use fastrand::Rng;
use futures::future::join_all;
use sandbox::faults::{Effect, Fault};

use self::world::{Asking, World};
use crate::seeds;

/// The number of rounds with fixed seeds.
const ROUNDS: u64 = 24;
/// The number of worlds that run concurrently.
const WORLDS: usize = 4;
/// The number of Nodes that a deletion names.
const NAMED: usize = 10;
/// The max number of writes in a deletion of ten Nodes: the dry run of the size, perhaps once more, a delete of each, and
/// the size. Later points meet no write, and the copy is killed after the answer.
const POINTS: usize = 14;

/// The choices of one round, drawn from its seed.
#[derive(Debug)]
struct Round {
    seed: u64,
    /// The copy that is called first.
    asked: usize,
    killed: usize,
    /// The copy that gets the repeated command.
    asked_again: usize,
    /// The number of the write.
    point: usize,
    /// True if the write is carried out, and its answer never arrives.
    is_done: bool,
    /// True if the command is repeated before the killed copy runs again.
    repeats_at_once: bool,
    asking: Asking,
}

impl Round {
    fn draw(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let asked = random.usize(0..2);
        let asked_again = random.usize(0..2);
        let killed = if random.f64() < 0.75 { asked } else { 1 - asked };
        Self {
            seed,
            asked,
            killed,
            asked_again,
            point: random.usize(0..POINTS),
            is_done: random.bool(),
            repeats_at_once: asked_again != killed && random.bool(),
            asking: [Asking::Together, Asking::EachByItself, Asking::InTwoParts][random.usize(0..3)],
        }
    }
}

/// Kills a copy at the point of the round, starts it again and repeats the command. Returns true if the point was met;
/// otherwise the copy was killed soon after the answer.
async fn run(world: &mut World, round: &Round) -> bool {
    let before = world.fill(3 * NAMED).await;
    let named = Rng::with_seed(round.seed).choose_multiple(world.nodes(), NAMED);
    let going: Vec<_> = named.iter().map(|node| node.name.clone()).collect();
    // Real Machines take longer to go than a command takes to lower the size.
    world.hold_in_deletion(&going, true);
    world.requests().clear();
    let effect = if round.is_done { Effect::HoldAnswer } else { Effect::Hold };
    let write = Fault::new(effect).on_writes().on_path("/(machines|machinedeployments)/").unwrap();
    let held = world.faults().add(write.after(round.point).times(1));

    let is_met = tokio::select! {
        () = held.wait_for_hits(1) => true,
        () = world.ask(round.asked, &named, round.asking) => false,
    };
    world.kill(round.killed);
    held.remove();
    if !round.repeats_at_once {
        world.start_copy(round.killed).await;
    }
    let repeated = world.repeat(round.asked_again, &named).await;
    if round.repeats_at_once {
        world.start_copy(round.killed).await;
    }
    assert!(repeated.is_ok(), "{round:?}: {repeated:?}\n{}", world.describe());
    world.hold_in_deletion(&going, false);
    let (now, expected) = (world.rest(round).await, before.without(&going));
    let why = || format!("{round:?}, met: {is_met}, now: {now:?}\n{}", world.describe());
    if is_met && round.killed == round.asked {
        assert!(expected.machines.is_subset(&now.machines), "one that nobody named has gone: {}", why());
        assert!(going.iter().all(|name| !now.machines.contains(name)), "a named one is there: {}", why());
        assert!((expected.size..=before.size).contains(&now.size), "{}", why());
    } else {
        assert_eq!(now, expected, "{}", why());
    }
    is_met
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_named_nodes_go_and_nobody_else_wherever_a_copy_is_killed() {
    let seeds = seeds("KILL_ROUNDS", "KILL_SEED", ROUNDS);
    let began = Instant::now();
    let lanes = seeds.chunks(seeds.len().div_ceil(WORLDS)).map(|seeds| async move {
        let mut world = World::start().await;
        let (mut run_here, mut met) = (0, 0);
        for seed in seeds {
            met += usize::from(run(&mut world, &Round::draw(*seed)).await);
            run_here += 1;
        }
        world.stop().await;
        (run_here, met)
    });
    let ended = join_all(lanes).await;
    let (rounds, met) = ended.iter().fold((0, 0), |(rounds, met), (more, more_met)| (rounds + more, met + more_met));
    let seconds = began.elapsed().as_secs_f64();
    writeln!(std::io::stderr(), "{rounds} rounds in {seconds:.1} s, {met} killed at their point").unwrap();
}
