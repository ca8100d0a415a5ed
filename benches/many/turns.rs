//! The autoscalers in a process of their own, and turns with and without an attack on their provider.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use testkit::Piped;

use crate::{
    Args,
    callers::{Autoscaler, Plan, Report},
    program::Program,
    world::World,
};

/// The number of calls of a loop, besides one for each Node.
const CALLS: usize = 6;
/// The longest time until all are served.
const PATIENCE: Duration = Duration::from_secs(300);
/// The shortest pause between two loops.
const SHORTEST: Duration = Duration::from_millis(50);

/// The median, the p99 and the rate of calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) median: u32,
    pub(crate) p99: u32,
    pub(crate) per_second: f64,
}

/// The calls with and without an attack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compared {
    pub(crate) without: Calls,
    pub(crate) under: Calls,
    /// The calls of the attack in a second.
    pub(crate) attack: f64,
}

impl Compared {
    /// Returns the ratio of both p99.
    pub(crate) fn ratio(&self) -> f64 {
        f64::from(self.under.p99) / f64::from(self.without.p99.max(1))
    }
}

/// The running autoscalers.
pub(crate) struct Turns {
    callers: Playing,
    turn: Duration,
    clusters: usize,
    plan: Plan,
}

struct Playing(Piped);

impl Playing {
    fn start(world: &World<'_>, name: &str, plan: &Plan) -> Self {
        let folder = world.write(name, plan);
        let mut command = Command::new(std::env::current_exe().expect("the bench"));
        Self(Piped::start(command.arg("--callers").arg(folder).stderr(Stdio::inherit())))
    }

    fn next(&mut self) -> Report {
        let line = self.0.line();
        let report: Report = serde_json::from_str(&line).expect("a report of the autoscalers");
        assert_eq!(report.crossed, 0, "an answer names something of another Cluster");
        report
    }
}

impl Turns {
    pub(crate) fn start(world: &World<'_>, program: &Program, args: &Args) -> Self {
        let turn = Duration::from_secs(args.turn);
        let calls = args.clusters * (CALLS + args.machines);
        let pause = Duration::from_secs_f64(calls as f64 / args.rate as f64).max(SHORTEST);
        let plan = Plan { provider: program.grpc, pause, report: turn, ..world.plan.clone() };
        let callers = Playing::start(world, "all", &plan);
        Self { callers, turn, clusters: args.clusters, plan }
    }

    /// Waits until all autoscalers are served, and returns the program's age then and the calls of a turn.
    pub(crate) fn until_served(&mut self, program: &Program) -> (Duration, Calls) {
        loop {
            let report = self.callers.next();
            if report.served == self.clusters {
                let age = program.age();
                let report = self.callers.next();
                return (age, self.calls(&report));
            }
            assert!(program.age() < PATIENCE, "only {} of {} are served", report.served, self.clusters);
        }
    }

    fn calls(&self, report: &Report) -> Calls {
        let per_second = report.calls as f64 / self.turn.as_secs_f64();
        Calls { median: report.median, p99: report.p99, per_second }
    }

    /// Returns the calls of the next whole turn. The one under way is of two kinds.
    fn whole_turn(&mut self) -> Calls {
        self.callers.next();
        let report = self.callers.next();
        self.calls(&report)
    }

    /// Measures in turns without an attack and with it, which `set` begins and ends.
    pub(crate) fn with(&mut self, count: usize, mut set: impl FnMut(bool)) -> Compared {
        let (mut without, mut under) = (Vec::new(), Vec::new());
        for _ in 0..count {
            without.push(self.whole_turn());
            set(true);
            under.push(self.whole_turn());
            set(false);
        }
        Compared { without: median(without), under: median(under), attack: 0.0 }
    }

    /// Measures in turns without and with an autoscaler of the last Cluster that calls without end.
    pub(crate) fn with_endless(&mut self, world: &World<'_>, count: usize) -> Compared {
        let last = self.plan.callers.last().expect("an autoscaler").clone();
        let endless = Autoscaler { is_endless: true, is_measured: false, ..last };
        let plan = Plan { callers: vec![endless], ..self.plan.clone() };
        let (mut playing, mut attack) = (None::<Playing>, 0.0);
        let turn = self.turn;
        let mut compared = self.with(count, |is_on| {
            if is_on {
                playing = Some(Playing::start(world, "endless", &plan));
            } else if let Some(mut playing) = playing.take() {
                attack = playing.next().endless as f64 / turn.as_secs_f64();
            }
        });
        compared.attack = attack;
        compared
    }
}

/// Returns the turn with the median of the p99s.
fn median(mut turns: Vec<Calls>) -> Calls {
    turns.sort_by_key(|calls| calls.p99);
    turns.get(turns.len() / 2).copied().unwrap_or_default()
}
