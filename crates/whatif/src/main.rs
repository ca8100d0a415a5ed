//! Reads the flags, whose help texts are their documentation, runs the program, prints its answer, and ends with the exit
//! code of it.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::{self, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use clap::{Parser, ValueEnum};
use rules::GoDuration;
use service::listen::Shutdown;
use tokio::time::timeout;
use whatif::{Answer, Change, Options, Player, Progress, Report, run};

/// The most binaries that are compared.
const MOST: usize = 2;
/// The time in which a run ends after a signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// What would an unmodified Cluster Autoscaler do with these manifests? It runs on Kubernetes APIs in memory, with
/// capi-autoscaler-provider and simulated Cluster API controllers. No cluster is needed, and nothing is written to one.
///
/// Exit code 0: all Pods have a Node, except those that were Pending in the manifests already. 1: other Pods stay
/// without a Node. 2: there is no answer, or none for Pods that only the small scheduler leaves out. If --until ends
/// the run, the code is for the Pods as they are then. Of two binaries, 1 counts before 2 before 0; differences don't
/// change the code.
#[derive(Clone, Debug, Parser)]
#[command(name = "whatif", version, max_term_width = 110, after_help = EXAMPLES)]
struct Args {
    /// Manifests or a dump of both clusters: a YAML or JSON file, a directory, or - for standard input. Manifests after
    /// a dump change it, as kubectl apply does. Repeatable
    #[arg(long = "filename", short = 'f', value_name = "FILE|DIR|-", required = true)]
    manifests: Vec<String>,

    /// The binary of Cluster Autoscaler, 1.33 or later, with its provider externalgrpc. Twice: the answers are
    /// compared; --expander=random, which other expanders use among equals too, may differ by itself
    #[arg(long, value_name = "BINARY", required_unless_present = "driver")]
    autoscaler: Vec<PathBuf>,

    /// The binary of kube-scheduler. Default: a small scheduler, whose limits are printed
    #[arg(long, value_name = "BINARY")]
    scheduler: Option<PathBuf>,

    /// Add the objects of a file, such as a Job; 40xjob.yaml adds them 40 times. Repeatable
    #[arg(long, value_name = "[Nx]FILE")]
    add: Vec<String>,

    /// Remove an object and everything that it owns. Repeatable
    #[arg(long, value_name = "KIND/[NAMESPACE/]NAME")]
    remove: Vec<String>,

    /// Change an object by a JSON merge patch, such as 'deployment/shop/web={"spec":{"replicas":2}}'. Repeatable
    #[arg(long, value_name = "KIND/[NAMESPACE/]NAME=JSON")]
    patch: Vec<String>,

    /// The Cluster, if the manifests have several
    #[arg(long, value_name = "NAMESPACE/NAME")]
    cluster: Option<String>,

    /// A price file, as serve --prices has it, for what the Nodes cost
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// End after this time even if something still moves, in simulated time. Pods that wait then count as
    /// without a Node
    #[arg(long, value_name = "DURATION", default_value = "2h")]
    until: String,

    /// Simulated time goes this many times as fast: Cluster Autoscaler's waits and the Machines' times are so much shorter
    #[arg(long, value_name = "FACTOR", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=600))]
    speed: u32,

    /// The time from a new Machine to a Ready Node. Default: what the group's Machines in the dump took, else 3m
    #[arg(long, value_name = "DURATION")]
    machine_time: Option<String>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Output,

    /// Keep the logs of the binaries in this directory
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,

    /// Play Cluster Autoscaler by a model of it, for tests without its binary
    #[arg(long, hide = true, conflicts_with = "autoscaler")]
    driver: bool,

    /// Cluster Autoscaler's flags, as you run it
    #[arg(last = true, value_name = "FLAGS OF CLUSTER AUTOSCALER")]
    flags: Vec<String>,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    /// A timeline and tables.
    Text,
    /// Everything, as one JSON object.
    Json,
    /// A test for each owner of Pods without a Node, and one for all others, as CI systems read it.
    Junit,
}

const EXAMPLES: &str = "\
Examples:
  # Do these 40 Jobs fit, and which groups grow?
  whatif -f dump.yaml --autoscaler ./cluster-autoscaler --add 40xjob.yaml -- --expander=least-waste
  # What goes when this Deployment shrinks?
  whatif -f dump.yaml --autoscaler ./cluster-autoscaler --patch 'deployment/shop/web={\"spec\":{\"replicas\":2}}'
  # Would another version decide otherwise?
  whatif -f dump.yaml --autoscaler ./cluster-autoscaler-1.33 --autoscaler ./cluster-autoscaler-1.36 --add 40xjob.yaml";

#[tokio::main]
async fn main() -> ExitCode {
    match answer_or_signal(Args::parse()).await {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::FAILURE,
        Ok(Answer::Unknown) => {
            eprintln!(
                "error: no answer for the Pods that the scheduler here leaves out, which the output names: use --scheduler"
            );
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns the answer, or ends the run and its binaries after SIGTERM or SIGINT.
async fn answer_or_signal(args: Args) -> anyhow::Result<Answer> {
    let stopping = Shutdown::on_signals()?.stopping();
    let mut run = tokio::spawn(async move { answer(&args).await });
    tokio::select! {
        answer = &mut run => answer?,
        () = stopping.cancelled() => {
            run.abort();
            // Nothing interrupts it while it reads manifests, such as from a terminal; then no binary runs yet.
            let _ = timeout(PATIENCE, run).await;
            eprintln!("error: ended by a signal, without an answer");
            process::exit(2)
        }
    }
}

/// Returns the worst answer of all binaries.
async fn answer(args: &Args) -> anyhow::Result<Answer> {
    ensure!(args.autoscaler.len() <= MOST, "--autoscaler: at most {MOST} binaries can be compared");
    let players: Vec<Player> = match args.autoscaler.as_slice() {
        [] => vec![Player::Driver],
        binaries => binaries.iter().cloned().map(Player::Binary).collect(),
    };
    let mut reports = Vec::new();
    for (number, player) in players.into_iter().enumerate() {
        let options = options(args, player, number)?;
        let mut out = io::stdout();
        let mut say = |progress: Progress| match progress {
            Progress::Happened(entry) if args.output == Output::Text => {
                // Whoever read it has gone, and sees so.
                let _ = writeln!(out, "{}", entry.line());
            }
            Progress::Happened(entry) => eprintln!("{}", entry.line()),
            Progress::Note(note) => eprintln!("{note}"),
        };
        let report = run(&options, &mut say).await?;
        if args.output == Output::Text {
            write!(io::stdout(), "\nCluster Autoscaler {}:\n\n{}\n", report.autoscaler, report.text())?;
        }
        reports.push(report);
    }
    print(args.output, &reports)?;
    Ok(reports.iter().map(Report::answer).max().unwrap_or(Answer::Yes))
}

/// Prints what is left to be printed after the last run.
fn print(output: Output, reports: &[Report]) -> anyhow::Result<()> {
    let mut out = io::stdout();
    match output {
        Output::Text => write!(out, "{}", compared(reports))?,
        Output::Json => writeln!(out, "{}", whatif::json(reports)?)?,
        Output::Junit => {
            writeln!(out, "{}", whatif::junit(reports))?;
            eprint!("{}", compared(reports));
        }
    }
    Ok(())
}

/// Returns what two binaries decide differently; nothing for one.
fn compared(reports: &[Report]) -> String {
    let [one, other] = reports else { return String::new() };
    let (differences, versions) = (one.differences(other), format!("{} and {}", one.autoscaler, other.autoscaler));
    if differences.is_empty() {
        return format!("{versions} decide the same.\n");
    }
    format!(
        "{versions} decide otherwise:\n  {}\n--expander=random, which other expanders use among equals too, chooses \
         anew in each run: it may differ by itself.\n",
        differences.join("\n  ")
    )
}

fn options(args: &Args, player: Player, number: usize) -> anyhow::Result<Options> {
    let changes = args.remove.iter().map(|text| Change::remove(text));
    let changes = changes.chain(args.patch.iter().map(|text| Change::patch(text)));
    let changes = changes.chain(args.add.iter().map(|text| Ok(Change::add(text))));
    let logs = args
        .logs
        .clone()
        .map(|logs| if args.autoscaler.len() > 1 { logs.join((number + 1).to_string()) } else { logs });
    Ok(Options {
        manifests: args.manifests.clone(),
        changes: changes.collect::<anyhow::Result<_>>()?,
        cluster: args.cluster.clone(),
        prices: args.prices.clone(),
        until: duration("--until", &args.until)?,
        speed: args.speed,
        machine_time: args.machine_time.as_deref().map(|text| duration("--machine-time", text)).transpose()?,
        player,
        scheduler: args.scheduler.clone(),
        flags: args.flags.clone(),
        logs,
    })
}

fn duration(flag: &str, text: &str) -> anyhow::Result<Duration> {
    let duration: GoDuration = text.parse().with_context(|| format!("{flag} {text}"))?;
    Ok(Duration::from_nanos(
        u64::try_from(duration.as_nanos()).with_context(|| format!("{flag} {text}: it must not be negative"))?,
    ))
}
