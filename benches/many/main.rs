//! A fleet at full size: the release binary serves many Clusters of a sandbox in this process, to autoscalers in a
//! process of their own. One Cluster by the same code stands beside it, and processes that serve one Cluster each.
//! Linux only, run by hand:
//!
//! ```console
//! cargo bench --bench fleet                                      # 1,000 Clusters of 6 Nodes, some 8 minutes
//! cargo bench --bench fleet -- --clusters 100 --machines 1000
//! cargo bench --bench fleet -- --part secret --part reconnect    # these parts alone
//! cargo bench --bench fleet -- --clusters 20 --processes 3 --turn 1 --turns 1 --rest 1
//! ```
//!
//! The parts, in this order:
//! - `size`: times, memory, watches, calls and the cost of an event, beside one Cluster.
//! - `dead`, `silent`, `slow`, `secret`: three of ten Clusters have a workload API that cuts connections, takes requests
//!   and never answers, or answers after two seconds; or a kubeconfig that is refused and a Secret that holds none, or
//!   one without a token. `hostile`: two of a hundred have an endless list, or a watch that repeats itself.
//!   `endless-watch`: one changes its Node without end. `annotations`: a MachineDeployment of one has ten thousand
//!   annotations, which change 50 times a second. `endless-client`: an autoscaler calls without end. Each is measured
//!   in turns without and with it: the p99 of others' calls, the readiness of the program, and the peak of its memory.
//! - `reconnect`: all connections are closed, and all autoscalers connect at once, from an address each and then from
//!   one, with the pauses of gRPC; the time until a Refresh of each is answered.
//! - `processes`: a process for each Cluster. `selectors`: two with different selectors, as beyond one process.
//!
//! It fails when the number of watches grows with that of Clusters, when an answer names anything of another Cluster,
//! when the program isn't ready beside an ailment, or, at full size, when a target is missed, also one of the
//! comparison with 50 processes.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used, clippy::panic)]
// The counts are far below the limits of their types.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod ailments;
#[path = "../../examples/sandbox/callers.rs"]
#[allow(dead_code, reason = "the demonstration has more of it")]
mod callers;
#[path = "../../examples/sandbox/certificates.rs"]
mod certificates;
mod figures;
mod parts;
mod processes;
mod program;
mod reconnect;
mod selectors;
mod turns;
mod world;

use std::{path::PathBuf, time::Duration};

use clap::Parser;

use self::{
    figures::Figures,
    parts::Part,
    program::{Program, Served},
    reconnect::Again,
    turns::{Compared, Turns},
    world::World,
};

/// The options of the bench.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Args {
    /// Run this part alone, or these. Repeatable. Default: all
    #[arg(long, value_name = "NAME")]
    part: Vec<Part>,
    /// The number of Clusters.
    #[arg(long, default_value_t = 1_000)]
    clusters: usize,
    /// The number of Machines of each.
    #[arg(long, default_value_t = 6)]
    machines: usize,
    /// The number of processes of one Cluster each that a fleet of as many is compared with; 0 for none.
    #[arg(long, default_value_t = 50)]
    processes: usize,
    /// The number of calls that all autoscalers make in a second, if they can.
    #[arg(long, default_value_t = 5_000)]
    rate: usize,
    /// The number of events that are timed.
    #[arg(long, default_value_t = 2_000)]
    events: usize,
    /// The duration of a turn with or without an attack, in seconds.
    #[arg(long, default_value_t = 4)]
    turn: u64,
    /// The number of turns of each.
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// The time for which the process rests before its memory is read, in seconds.
    #[arg(long, default_value_t = 8)]
    rest: u64,
    /// Play the autoscalers of this folder: the process of its own.
    #[arg(long, hide = true)]
    callers: Option<PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if let Some(folder) = &args.callers {
        runtime.block_on(callers::process(folder)).expect("the autoscalers play");
        return;
    }
    let mut missed = Vec::new();
    if args.has(Part::Size) {
        let one = measure(&runtime, &Args { clusters: 1, part: vec![Part::Size], ..args.clone() });
        let all = measure(&runtime, &args);
        if let (Some(one), Some(all)) = (&one.size, &all.size) {
            figures::print(&args, one, all);
            missed.extend(figures::missed(&args, one, all));
        }
        missed.extend(all.shown(&args));
    } else if args.has_ill() || args.has(Part::Reconnect) {
        missed.extend(measure(&runtime, &args).shown(&args));
    }
    if args.has(Part::Processes) && args.processes > 0 {
        missed.extend(processes::compare(&runtime, &args));
    }
    if args.has(Part::Selectors) {
        missed.extend(selectors::compare(&runtime, &args));
    }
    assert!(missed.is_empty(), "{}", missed.join("; "));
}

impl Args {
    fn has(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    /// Returns true if anything is measured in turns.
    fn has_ill(&self) -> bool {
        self.has(Part::EndlessClient) || Part::ILL.into_iter().any(|part| self.has(part))
    }
}

/// The measurements of the parts that share a fleet.
struct Measured {
    size: Option<Figures>,
    turns: Vec<(Part, Compared)>,
    again: Vec<Again>,
}

impl Measured {
    /// Prints all but the size, and returns the violated limits.
    fn shown(&self, args: &Args) -> Vec<String> {
        figures::print_turns(&self.turns);
        self.again.iter().for_each(Again::print);
        let again = self.again.iter().flat_map(|again| again.missed(figures::is_full(args)));
        figures::missed_in_turns(args, &self.turns).into_iter().chain(again).collect()
    }
}

/// Measures a fleet of this size.
fn measure(runtime: &tokio::runtime::Runtime, args: &Args) -> Measured {
    let world = World::start(runtime, args.clusters, args.machines);
    let program = Program::start(&world, Served::all_of(&world));
    let ready = world.block_on(program.ready());
    let nodes = world.block_on(program.all_nodes(&world));
    let size = args.has(Part::Size).then(|| size(&world, &program, args, (ready, nodes)));
    let turns = if args.has_ill() { in_turns(&world, &program, args) } else { Vec::new() };
    let each = [true, false].into_iter().filter(|_| args.has(Part::Reconnect));
    let again = each.map(|have_addresses| reconnect::measure(&world, &program, args, have_addresses)).collect();
    Measured { size, turns, again }
}

fn size(world: &World<'_>, program: &Program, args: &Args, (ready, nodes): (Duration, Duration)) -> Figures {
    let mut turns = Turns::start(world, program, args);
    let (served, plain) = turns.until_served();
    std::thread::sleep(Duration::from_secs(args.rest));
    let (resident, peak) = (program.memory("VmRSS"), program.memory("VmHWM"));
    let watches = world.watches();
    drop(turns);
    let event = world.block_on(program.event(world, args));
    Figures { ready, nodes, served, resident, peak, watches, plain, event }
}

/// Measures in turns without and with each attack and ailment.
fn in_turns(world: &World<'_>, program: &Program, args: &Args) -> Vec<(Part, Compared)> {
    let mut turns = Turns::start(world, program, args);
    turns.until_served();
    let ill = Part::ILL.into_iter().filter(|part| args.has(*part));
    let mut all: Vec<_> = ill.map(|part| (part, turns.with_ailment(part, args.turns))).collect();
    if args.has(Part::EndlessClient) {
        all.push((Part::EndlessClient, turns.with_endless(args.turns)));
    }
    all
}
