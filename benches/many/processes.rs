//! A fleet beside as many processes that serve one Cluster each.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::{
    Args,
    events::Events,
    program::{Program, Served},
    world::World,
};

/// The time after the last event in which all of it is processed.
const DRAIN: Duration = Duration::from_secs(1);

/// The number of processes from which on the ratios have targets: the start of a process has its share in each.
const FULL: usize = 50;
/// The least ratios of the processes to a fleet: of memory, of processor time until all is known, and of that of an
/// event, which ten processes get, those of its namespace.
const MEMORY: f64 = 10.0;
const START: f64 = 2.0;
const EVENT: f64 = 5.0;

/// The sums over the processes.
struct Sums {
    resident: u64,
    watches: usize,
    /// The processor time until all were ready.
    start: Duration,
    /// The processor time of an event, which several processes may get.
    event: Duration,
}

/// Compares both, prints a table, and returns the violated limits.
pub(crate) fn compare(runtime: &Runtime, args: &Args) -> Vec<String> {
    let count = args.processes;
    let [fleet, single] = [true, false].map(|is_fleet| measure(runtime, args, is_fleet));
    println!("\n{count} Clusters                                    one fleet      {count} processes");
    let mut missed = Vec::new();
    let mut row = |name: &str, fleet: String, single: String, ratio: f64, least: f64| {
        println!("{name:<36} {fleet:>16} {single:>16}    1 : {ratio:.1} of {least}");
        if count >= FULL && ratio < least {
            missed.push(format!("missed: {name}, beside {count} processes"));
        }
    };
    let mib = |kib: u64| format!("{} MiB", kib / 1024);
    let ratio = single.resident as f64 / fleet.resident as f64;
    row("resident, without autoscalers", mib(fleet.resident), mib(single.resident), ratio, MEMORY);
    let ratio = single.watches as f64 / fleet.watches as f64;
    // Each process has the watches of a fleet.
    let least = count as f64 / 2.0;
    row("watches of the management cluster", fleet.watches.to_string(), single.watches.to_string(), ratio, least);
    let divided = |single: Duration, fleet: Duration| single.as_secs_f64() / fleet.as_secs_f64().max(f64::EPSILON);
    let millis = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let ratio = divided(single.start, fleet.start);
    row("processor time until all is known", millis(fleet.start), millis(single.start), ratio, START);
    let micros = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
    let ratio = divided(single.event, fleet.event);
    row("processor time of an event", micros(fleet.event), micros(single.event), ratio, EVENT);
    assert!(fleet.watches < single.watches, "a fleet opens fewer watches");
    missed
}

fn measure(runtime: &Runtime, args: &Args, is_fleet: bool) -> Sums {
    let world = World::start(runtime, args.processes, args.machines);
    let programs: Vec<_> = if is_fleet {
        vec![Program::start(&world, Served::all_of(&world))]
    } else {
        world.clusters().iter().map(|cluster| Program::start(&world, Served::One(cluster))).collect()
    };
    let busy = || programs.iter().map(Program::processor_time).sum::<Duration>();
    world.block_on(async {
        for program in &programs {
            program.ready().await;
        }
        programs[0].all_nodes(&world).await;
    });
    let start = busy();
    std::thread::sleep(Duration::from_secs(args.rest));
    let resident = programs.iter().map(|program| program.memory("VmRSS")).sum();
    let watches = world.watches().management;
    let before = busy();
    std::thread::sleep(DRAIN);
    let idle = busy().saturating_sub(before);
    let events = Events::of(&world, args);
    let (began, before) = (std::time::Instant::now(), busy());
    world.block_on(events.send_all(&world, args.events));
    std::thread::sleep(DRAIN);
    let idle = idle.mul_f64(began.elapsed().as_secs_f64() / DRAIN.as_secs_f64());
    let event = busy().saturating_sub(before).saturating_sub(idle) / args.events as u32;
    Sums { resident, watches, start, event }
}
