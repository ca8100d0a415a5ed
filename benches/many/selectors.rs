//! Beyond one process: two processes with different selectors beside one that serves all of their Clusters.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::{
    Args, figures,
    program::{Program, Served},
    world::{BOTH_SELECTOR, SECOND_SELECTOR, SELECTOR, Watches, World},
};

/// The highest ratio of the processor time of two to that of one: each knows all objects.
const START: f64 = 2.0;

/// The figures of the processes together.
struct Sums {
    ready: Duration,
    nodes: Duration,
    /// The processor time until all is known.
    start: Duration,
    resident: u64,
    largest: u64,
    watches: Watches,
}

/// Compares both, prints a table, and returns the violated limits.
pub(crate) fn compare(runtime: &Runtime, args: &Args) -> Vec<String> {
    let world = World::start(runtime, args.clusters, args.machines);
    let second = world.label_over();
    let one = measure(&world, args, &[Served::Fleet(BOTH_SELECTOR, args.clusters)]);
    world.forget_requests();
    let halves = [Served::Fleet(SELECTOR, args.clusters - second), Served::Fleet(SECOND_SELECTOR, second)];
    let two = measure(&world, args, &halves);
    println!("\n{:<44} {:>16} {:>16}", format!("{} Clusters", args.clusters), "one process", "two processes");
    let row = |name: &str, text: &dyn Fn(&Sums) -> String| println!("{name:<44} {:>16} {:>16}", text(&one), text(&two));
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    row("ready, the last one", &|it| seconds(it.ready));
    row("all Nodes in sync", &|it| seconds(it.nodes));
    row("processor time until all is known", &|it| format!("{:.0} ms", it.start.as_secs_f64() * 1e3));
    row("resident, without autoscalers", &|it| format!("{} MiB", it.resident / 1024));
    row("resident, the largest", &|it| format!("{} MiB", it.largest / 1024));
    row("watches: management + each workload", &|it| format!("{} + {}", it.watches.management, it.watches.workload));
    let mut missed = Vec::new();
    let mut check = |is_met: bool, what: &str| {
        if !is_met {
            missed.push(format!("missed: {what}, with two selectors"));
        }
    };
    check(two.watches.management == 2 * one.watches.management, "the watches of one for each process");
    check(two.watches.workload == 1, "one watch for each workload cluster");
    if figures::is_full(args) {
        check(two.largest < one.largest, "less memory for each than for one");
        check(two.start <= one.start.mul_f64(START), "the processor time");
    }
    missed
}

fn measure(world: &World<'_>, args: &Args, served: &[Served<'_>]) -> Sums {
    let programs: Vec<_> = served.iter().map(|served| Program::start(world, *served)).collect();
    let (mut ready, mut nodes) = (Duration::ZERO, Duration::ZERO);
    world.block_on(async {
        for program in &programs {
            ready = ready.max(program.ready().await);
        }
        for program in &programs {
            nodes = nodes.max(program.all_nodes(world).await);
        }
    });
    let start = programs.iter().map(Program::processor_time).sum();
    std::thread::sleep(Duration::from_secs(args.rest));
    let memory = || programs.iter().map(|program| program.memory("VmRSS"));
    let (resident, largest) = (memory().sum(), memory().max().unwrap_or_default());
    Sums { ready, nodes, start, resident, largest, watches: world.watches() }
}
