//! Runs the same scenarios with in-tree and with this program, both under the same unmodified Cluster Autoscaler, on
//! real API servers with Cluster API's controllers, and prints how each ends.
//!
//! A scenario looks at objects, Pods and Cluster Autoscaler alone, so that both sides are judged by the same rules.

mod report;
mod scenarios;
mod stage;

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use e2e::{
    autoscaling::{Autoscaler, Binary, Version, binary::VARIABLE},
    go::{self, Components},
    program,
};
use futures::{StreamExt as _, stream};

use report::{Cell, Report};
use scenarios::{Outcome, SCENARIOS, Scenario};
use stage::{Side, Stage};

/// The version that the driver plays.
const DRIVEN: Version = Version::new(37, 0);

/// A scenario that takes longer is broken.
const LONGEST: Duration = Duration::from_secs(5400);

/// Runs each scenario with Cluster Autoscaler's own provider for Cluster API and with this program.
///
/// CLUSTER_AUTOSCALER names the binaries of Cluster Autoscaler, separated by `:`. Each must have both providers: a
/// released one has, and so has one built with `-tags clusterapi,externalgrpc` since 1.36.
#[derive(Parser)]
#[command(name = "side-by-side")]
struct Args {
    /// Run the scenarios whose names contain one of these words, all if none is given
    words: Vec<String>,
    /// List the scenarios and what is expected of each
    #[arg(long)]
    list: bool,
    /// Instead of a binary let a driver make the calls of Cluster Autoscaler 1.37, for scenarios without in-tree
    #[arg(long)]
    driver: bool,
    /// Run only these sides
    #[arg(long, value_delimiter = ',')]
    sides: Vec<SideArg>,
    /// Run this many scenarios at once, each with API servers of its own; those with many Nodes run alone, after the others
    #[arg(long, default_value_t = 2, value_name = "N")]
    at_once: usize,
    /// Use this binary of the program, such as an optimized one, instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print the results as Markdown or as JSON
    #[arg(short, long, value_enum, default_value_t = Format::Markdown)]
    output: Format,
    /// Keep the logs here, a directory for each scenario and side
    #[arg(long, value_name = "DIRECTORY", default_value = "target/tmp/side-by-side")]
    logs: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Markdown,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum SideArg {
    InTree,
    Here,
    HereTwice,
}

impl From<SideArg> for Side {
    fn from(side: SideArg) -> Self {
        match side {
            SideArg::InTree => Self::InTree,
            SideArg::Here => Self::Here,
            SideArg::HereTwice => Self::HereTwice,
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("side-by-side: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|scenario| is_chosen(scenario, &args.words)).collect();
    ensure!(!chosen.is_empty(), "no scenario has {} in its name: see --list", args.words.join(" or "));
    if args.list {
        print!("{}", report::list(&chosen));
        return Ok(ExitCode::SUCCESS);
    }
    let autoscalers: Vec<Autoscaler> = if args.driver {
        vec![Autoscaler::Driver(DRIVEN)]
    } else {
        Binary::named()?.into_iter().map(Autoscaler::Binary).collect()
    };
    let sides = sides(args);
    let in_tree = sides.contains(&Side::InTree);
    ensure!(!(args.driver && in_tree), "--driver has no in-tree: it calls a server of the protocol");
    ensure!(!autoscalers.is_empty(), "{VARIABLE} names no binary of Cluster Autoscaler: set it, or use --driver");
    let runtime = tokio::runtime::Runtime::new()?;
    let components = Arc::new(go::components()?);
    let program = args.program.clone().map_or_else(program::build, Ok)?;
    let mut jobs = Vec::new();
    for &scenario in &chosen {
        for autoscaler in autoscalers.iter().filter(|autoscaler| autoscaler.version().minor >= scenario.since) {
            for &side in &sides {
                jobs.push(Job { scenario, autoscaler: autoscaler.clone(), side });
            }
        }
    }
    let environment = (&components, &program, &args.logs);
    let start = Instant::now();
    let (alone, others): (Vec<_>, Vec<_>) = jobs.into_iter().enumerate().partition(|(_, job)| job.scenario.alone);
    let run = async |(number, job): (usize, Job)| {
        let cell = job.run(environment).await;
        eprintln!("{}", cell.line());
        (number, cell)
    };
    let mut cells: Vec<(usize, Cell)> = runtime.block_on(async {
        let others: Vec<_> = stream::iter(others).map(run).buffer_unordered(args.at_once).collect().await;
        let alone: Vec<_> = stream::iter(alone).then(run).collect().await;
        others.into_iter().chain(alone).collect()
    });
    cells.sort_by_key(|(number, _)| *number);
    let cells = cells.into_iter().map(|(_, cell)| cell).collect();
    let report = Report::new(&chosen, cells, start.elapsed());
    match args.output {
        Format::Markdown => print!("{}", report.markdown()),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    // In-tree may fail as it does; a scenario that couldn't be run, or in which this program fails, may not.
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn sides(args: &Args) -> Vec<Side> {
    match args.sides[..] {
        [] if args.driver => vec![Side::Here, Side::HereTwice],
        [] => Side::ALL.to_vec(),
        ref named => named.iter().copied().map(Side::from).collect(),
    }
}

fn is_chosen(scenario: &Scenario, words: &[String]) -> bool {
    words.is_empty() || words.iter().any(|word| scenario.name.contains(word.as_str()))
}

/// A scenario to be run with one provider.
struct Job<'a> {
    scenario: &'a Scenario,
    autoscaler: Autoscaler,
    side: Side,
}

impl Job<'_> {
    async fn run(self, (components, program, logs): (&Arc<Components>, &PathBuf, &PathBuf)) -> Cell {
        let version = self.autoscaler.version().to_string();
        let logs =
            logs.join(self.scenario.name).join(format!("{version} {}", self.side.as_str()).replace([' ', ','], "-"));
        let (scenario, side) = (self.scenario.name, self.side);
        let start = Instant::now();
        let outcome = self.outcome(Arc::clone(components), program.clone(), logs).await;
        Cell { scenario, version, side, outcome: outcome.map_err(|error| format!("{error:#}")), took: start.elapsed() }
    }

    async fn outcome(&self, components: Arc<Components>, program: PathBuf, logs: PathBuf) -> Result<Outcome> {
        if logs.exists() {
            fs::remove_dir_all(&logs).with_context(|| format!("removing {}", logs.display()))?;
        }
        fs::create_dir_all(&logs)?;
        let logs = fs::canonicalize(logs)?;
        let stage = Stage::set(components, program, logs, self.side, self.autoscaler.clone()).await?;
        tokio::time::timeout(LONGEST, (self.scenario.body)(&stage)).await.context("it doesn't end")?
    }
}
