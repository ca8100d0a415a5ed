//! Runs the program, prints its answer, and ends with the exit code of it.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use rules::GoDuration;
use whatif::{Args, Change, Options, Output, Player, Progress, Report, run};

/// The most binaries that are compared.
const MOST: usize = 2;

#[tokio::main]
async fn main() -> ExitCode {
    match answer(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns true if all Pods have got a Node.
async fn answer(args: &Args) -> anyhow::Result<bool> {
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
    Ok(reports.iter().all(Report::all_run))
}

/// Prints what is left to be printed after the last run.
fn print(output: Output, reports: &[Report]) -> anyhow::Result<()> {
    let mut out = io::stdout();
    match (output, reports) {
        (Output::Json, [report]) => writeln!(out, "{}", serde_json::to_string_pretty(report)?)?,
        (Output::Junit, reports) => writeln!(out, "{}", whatif::junit(reports))?,
        (Output::Json, reports) => writeln!(out, "{}", serde_json::to_string_pretty(reports)?)?,
        (Output::Text, [one, other]) => {
            let differences = one.differences(other);
            if differences.is_empty() {
                writeln!(out, "{} and {} decide the same.", one.autoscaler, other.autoscaler)?;
            } else {
                writeln!(out, "{} and {} decide otherwise:", one.autoscaler, other.autoscaler)?;
            }
            for difference in differences {
                writeln!(out, "  {difference}")?;
            }
        }
        (Output::Text, _) => {}
    }
    Ok(())
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
