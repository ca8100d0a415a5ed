//! Random commands, events and faults, from seeds. At rest the size is the sum of the commands: one that was answered
//! OK counts once, one with an unknown outcome at most once, and a refused one never. Rounds have fixed seeds.
//! `WRITES_ROUNDS` sets a number of rounds with new seeds, `WRITES_SEED` repeats a single one.

use std::{collections::BTreeSet, time::Duration};

use fastrand::Rng;
use futures::{
    StreamExt as _,
    future::{LocalBoxFuture, join_all},
    stream::FuturesUnordered,
};
use proto::ExternalGrpcNode;
use sandbox::{
    Times,
    faults::{Effect, Fault},
};
use tonic::{Code, Status};

use crate::{
    seeds,
    world::{Start, World},
};

/// The number of rounds with fixed seeds.
const ROUNDS: u64 = 4;
/// The number of concurrent worlds.
const WORLDS: usize = 4;
const STEPS: usize = 30;
const MACHINES: usize = 8;

/// A command.
#[derive(Clone, Debug)]
enum Command {
    Delete(Vec<ExternalGrpcNode>),
    Increase(i32),
    Decrease(i32),
}

/// The outcome of the commands so far.
#[derive(Debug, Default)]
struct Ledger {
    /// The Nodes whose deletion was answered OK.
    deleted: BTreeSet<String>,
    /// The named Nodes whose outcome is unknown.
    perhaps_deleted: BTreeSet<String>,
    increased: i64,
    perhaps_increased: i64,
    /// The sum of the decreases, which is an upper limit: a decrease stops at the Machines with a Node.
    decreased: i64,
    /// The Machines that another user has deleted.
    lost: BTreeSet<String>,
    /// The answers, for a round that fails.
    answers: Vec<String>,
}

impl Ledger {
    fn note(&mut self, command: Command, answer: Result<(), Status>) {
        self.answers
            .push(format!("{command:?} => {:?}", answer.as_ref().map_err(|error| (error.code(), error.message()))));
        let is_ok = answer.is_ok();
        let is_unknown = answer.is_err_and(|error| match error.code() {
            Code::Unavailable | Code::Aborted | Code::Cancelled | Code::DeadlineExceeded => true,
            Code::FailedPrecondition | Code::NotFound | Code::InvalidArgument => false,
            other => panic!("{command:?}: {other:?} says nothing of a repeat: {error:?}"),
        });
        match command {
            Command::Delete(nodes) if is_ok => self.deleted.extend(names(nodes)),
            Command::Delete(nodes) if is_unknown => self.perhaps_deleted.extend(names(nodes)),
            Command::Increase(delta) if is_ok => self.increased += i64::from(delta),
            Command::Increase(delta) if is_unknown => self.perhaps_increased += i64::from(delta),
            Command::Decrease(delta) if is_ok || is_unknown => self.decreased += i64::from(delta),
            Command::Delete(_) | Command::Increase(_) | Command::Decrease(_) => {}
        }
    }

    /// Asserts that the group at rest is the sum of the commands.
    fn check(&self, world: &World, first: &BTreeSet<String>, seed: u64) {
        let now = world.now();
        let why = || format!("seed {seed}: {self:#?}\nnow {now:?}\n{}", world.describe());
        let still_there: Vec<_> = self.deleted.intersection(&now.machines).collect();
        assert!(still_there.is_empty(), "{still_there:?} should have gone, {}", why());
        let named: BTreeSet<_> = self.deleted.union(&self.perhaps_deleted).cloned().collect();
        let counted = count(named.difference(&now.machines));
        let most = i64::try_from(MACHINES).unwrap() + self.increased - counted;
        // A Machine that another user has deleted may have been gone before it was named, and is then replaced.
        let highest = most + self.perhaps_increased + count(named.intersection(&self.lost));
        let lowest = most - self.decreased;
        assert!((lowest..=highest).contains(&now.size), "not in {lowest}..={highest}, {}", why());
        if self.lost.is_empty() {
            let not_named: BTreeSet<_> = first.difference(&named).cloned().collect();
            let taken: Vec<_> = not_named.difference(&now.machines).collect();
            assert!(taken.is_empty(), "{taken:?} were named by nobody and have gone, {}", why());
        }
    }
}

fn names(nodes: Vec<ExternalGrpcNode>) -> impl Iterator<Item = String> {
    nodes.into_iter().map(|node| node.name)
}

fn count<'a>(names: impl Iterator<Item = &'a String>) -> i64 {
    i64::try_from(names.count()).unwrap()
}

fn fault(random: &mut Rng) -> Fault {
    let faults = [
        Fault::refuse(409, "Conflict", "the object has been modified"),
        Fault::refuse(500, "InternalError", "etcdserver: request timed out"),
        Fault::refuse(429, "TooManyRequests", "too many requests"),
        Fault::new(Effect::CutBefore),
        Fault::new(Effect::CutAfter),
        Fault::new(Effect::Delay(Duration::from_millis(random.u64(1..80)))),
    ];
    let fault = faults[random.usize(0..faults.len())].clone();
    let fault = if random.bool() { fault.on_writes() } else { fault.on_method("GET") };
    fault.on_path("/(machines|machinedeployments)/").unwrap().after(random.usize(0..4)).times(random.usize(1..3))
}

fn command(random: &mut Rng, world: &World, decreases: bool) -> Command {
    match random.u8(0..if decreases { 10 } else { 9 }) {
        0..=5 => {
            let count = [1, 1, 1, 2, 3][random.usize(0..5)];
            Command::Delete(random.choose_multiple(world.nodes(), count))
        }
        6..=8 => Command::Increase(random.i32(1..3)),
        _ => Command::Decrease(random.i32(1..3)),
    }
}

async fn carry_out(world: &World, copy: usize, command: Command, deadline: Duration) -> (Command, Result<(), Status>) {
    let answer = match &command {
        Command::Delete(nodes) => world.delete(copy, nodes.clone(), deadline).await,
        Command::Increase(delta) => world.increase(copy, *delta, deadline).await,
        Command::Decrease(delta) => world.decrease(copy, -delta, deadline).await,
    };
    (command, answer)
}

async fn run(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let millis = |random: &mut Rng, most: u64| Duration::from_millis(random.u64(0..=most));
    // Without faults or decreases the final state is better known.
    let (is_disturbed, decreases) = (random.bool(), random.bool());
    let times = Times {
        react: millis(&mut random, 20),
        // A Machine that joins after it was chosen for a decrease may go.
        join: if decreases { Duration::from_secs(60) } else { millis(&mut random, 200) },
        terminate: millis(&mut random, 200),
        ..Times::ZERO
    };
    let mut world = World::start(Start { copies: 2, machines: MACHINES, times, ..Start::default() }).await;
    for copy in 0..2 {
        world.until_known(copy).await;
    }
    let first = world.now().machines;
    let mut ledger = Ledger::default();
    {
        let mut running: FuturesUnordered<LocalBoxFuture<'_, _>> = FuturesUnordered::new();
        for _ in 0..STEPS {
            match random.u8(0..20) {
                0..=1 => drop(world.sandbox.management().faults().add(fault(&mut random))),
                3 if is_disturbed => {
                    let machines: Vec<_> = world.now().machines.into_iter().collect();
                    if let Some(name) = random.choice(machines) {
                        world.delete_machine(&name);
                        ledger.lost.insert(name);
                    }
                }
                _ => {
                    let command = command(&mut random, &world, decreases);
                    let deadline = Duration::from_millis([60, 5_000, 5_000, 5_000, 5_000][random.usize(0..5)]);
                    running.push(Box::pin(carry_out(&world, random.usize(0..2), command, deadline)));
                }
            }
            // Running commands go on for a moment, or overlap with the next step at once.
            let pause = tokio::time::sleep(millis(&mut random, 60));
            tokio::pin!(pause);
            while !running.is_empty() {
                tokio::select! {
                    Some((command, answer)) = running.next() => ledger.note(command, answer),
                    () = &mut pause => break,
                }
            }
        }
        while let Some((command, answer)) = running.next().await {
            ledger.note(command, answer);
        }
    }
    world.sandbox.management().faults().clear();
    // Commands whose callers have left may still run: they end with their copy.
    world.restart().await;
    world.rest().await;
    ledger.check(&world, &first, seed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_the_size_is_what_the_commands_add_up_to() {
    let seeds = seeds("WRITES_ROUNDS", "WRITES_SEED", ROUNDS);
    let lanes = seeds.chunks(seeds.len().div_ceil(WORLDS)).map(|seeds| async move {
        for seed in seeds {
            run(*seed).await;
        }
    });
    join_all(lanes).await;
}
