//! A fleet at full size: the release binary serves many Clusters of a sandbox in this process, to autoscalers in a
//! process of their own. One Cluster by the same code stands beside it.
//! Linux only, run by hand; it needs CAP_SYS_NICE, for measured processes in real time:
//!
//! ```console
//! cargo bench --bench fleet                                      # 1,000 Clusters of 6 Nodes, some 25 minutes
//! cargo bench --bench fleet -- --clusters 100 --machines 1000
//! cargo bench --bench fleet -- --part secret --part slow         # these parts alone
//! cargo bench --bench fleet -- --clusters 20 --turn 1 --turns 1 --rest 1
//! ```
//!
//! The parts, in this order:
//! - `size`: times, memory, watches, calls and the cost of an event, beside one Cluster.
//! - in turns without and with it, the p99 of others' calls, the readiness of the program, and the peak of its memory:
//!   - `dead`, `silent`, `slow`: three of ten workload APIs cut connections, take requests and never answer, or answer
//!     after two seconds.
//!   - `hostile`: two of a hundred have an endless list, or a watch that repeats itself.
//!   - `endless-watch`: one changes its Node without end.
//!   - `secret`: the credentials of three of ten Clusters are refused, and their Secrets hold no kubeconfig, or one
//!     without a token.
//!   - `annotations`: a MachineDeployment has ten thousand annotations, which change 50 times a second.
//!   - `endless-client`, `endless-clients`: one autoscaler calls without end, or three do, whom a thread can't answer
//!     all.
//!
//! It fails when the number of watches grows with that of Clusters, when an answer names anything of another Cluster,
//! when the program isn't ready beside an ailment, or, at full size, when a target is missed.

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
#[path = "../serving/environment.rs"]
mod environment;
mod events;
mod figures;
mod parts;
mod program;
mod turns;
mod world;

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use tokio::runtime::Runtime;

use self::{figures::Figures, parts::Part, program::Program, turns::Turns, world::World};

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
    /// The number of calls that all autoscalers make in a second, if they can.
    #[arg(long, default_value_t = 5_000)]
    rate: usize,
    /// The number of Clusters whose Machines change.
    #[arg(long, default_value_t = 20)]
    changing: usize,
    /// The number of events that are timed.
    #[arg(long, default_value_t = 2_000)]
    events: usize,
    /// The duration of a turn with or without an attack, in seconds.
    #[arg(long, default_value_t = 3)]
    turn: u64,
    /// The number of turns of each.
    #[arg(long, default_value_t = 5)]
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
    let missed = with_a_fleet(&runtime, &args);
    assert!(missed.is_empty(), "{}", missed.join("; "));
}

impl Args {
    fn has(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    /// Returns true if anything is measured in turns.
    fn has_turns(&self) -> bool {
        Part::in_turns().any(|part| self.has(part))
    }
}

/// Measures the parts that share a fleet, prints them, and returns the violated limits.
fn with_a_fleet(runtime: &Runtime, args: &Args) -> Vec<String> {
    let one = args.has(Part::Size).then(|| {
        let args = Args { clusters: 1, ..args.clone() };
        let fleet = Fleet::start(runtime, &args);
        let figures = fleet.size(&args);
        (fleet, figures)
    });
    let fleet = Fleet::start(runtime, args);
    let mut missed = Vec::new();
    if let Some((fleet_of_one, one)) = one {
        let all = fleet.size(args);
        let events = runtime.block_on(events::side_by_side([&fleet_of_one, &fleet], args));
        drop(fleet_of_one);
        figures::print(args, [&one, &all], events);
        missed.extend(figures::missed(args, [&one, &all], events));
    }
    if args.has_turns() {
        missed.extend(fleet.in_turns(args));
    }
    missed
}

/// A fleet whose Nodes are all in sync.
pub(crate) struct Fleet<'a> {
    pub(crate) world: World<'a>,
    pub(crate) program: Program,
    ready: Duration,
    nodes: Duration,
}

impl<'a> Fleet<'a> {
    fn start(runtime: &'a Runtime, args: &Args) -> Self {
        let world = World::start(runtime, args.clusters, args.machines);
        let program = Program::start(&world);
        let ready = world.block_on(program.ready());
        let nodes = world.block_on(program.all_nodes(&world));
        Self { world, program, ready, nodes }
    }

    fn size(&self, args: &Args) -> Figures {
        let Self { world, program, ready, nodes } = self;
        let mut turns = Turns::start(world, program, args);
        let (served, plain) = turns.until_served();
        std::thread::sleep(Duration::from_secs(args.rest));
        let (resident, peak) = (program.memory("VmRSS"), program.memory("VmHWM"));
        let watches = world.watches();
        Figures { ready: *ready, nodes: *nodes, served, resident, peak, watches, plain }
    }

    /// Measures in turns without and with each attack and ailment, prints that, and returns the violated limits.
    fn in_turns(&self, args: &Args) -> Vec<String> {
        let mut turns = Turns::start(&self.world, &self.program, args);
        turns.until_served();
        figures::print_heading();
        let parts = Part::in_turns().filter(|part| args.has(*part));
        parts
            .flat_map(|part| {
                let compared = match part {
                    Part::EndlessClient => turns.with_endless(args.turns, 1),
                    Part::EndlessClients => turns.with_endless(args.turns, 3),
                    _ => turns.with_ailment(part, args.turns),
                };
                figures::print_turns(part, &compared);
                figures::missed_in_turns(args, part, &compared)
            })
            .collect()
    }
}
