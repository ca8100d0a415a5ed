//! How the scenarios ended, as a table and as JSON.

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;

use crate::{
    scenarios::{Outcome, Scenario},
    stage::Side,
};

/// The end of a scenario with one provider and one Cluster Autoscaler.
#[derive(Serialize)]
pub(crate) struct Cell {
    pub(crate) scenario: &'static str,
    /// The version of Cluster Autoscaler.
    pub(crate) version: String,
    pub(crate) side: Side,
    /// The outcome, or why the scenario couldn't be run.
    pub(crate) outcome: Result<Outcome, String>,
    #[serde(rename = "tookSeconds", serialize_with = "seconds")]
    pub(crate) took: Duration,
}

impl Serialize for Side {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

fn seconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(took.as_secs())
}

impl Cell {
    /// Returns a line for the one who waits.
    pub(crate) fn line(&self) -> String {
        let (version, side, took) = (&self.version, self.side.as_str(), self.took.as_secs());
        format!("{} · {version} · {side}: {} ({took} s)", self.scenario, self.text())
    }

    fn text(&self) -> String {
        match &self.outcome {
            Ok(outcome) => format!("{} {}", if outcome.good { "yes:" } else { "**no**:" }, outcome.seen),
            Err(error) => format!("couldn't be run: {error}"),
        }
    }

    /// Returns true unless it couldn't be run, or this program failed.
    fn is_good(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|outcome| outcome.good || self.side == Side::InTree)
    }
}

/// What a run has found.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    scenarios: &'a [&'a Scenario],
    results: Vec<Cell>,
    #[serde(rename = "tookSeconds", serialize_with = "seconds")]
    took: Duration,
}

impl<'a> Report<'a> {
    pub(crate) fn new(scenarios: &'a [&'a Scenario], results: Vec<Cell>, took: Duration) -> Self {
        Self { scenarios, results, took }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.results.iter().all(Cell::is_good)
    }

    /// Returns a row for each scenario, and a column for each version and side.
    pub(crate) fn markdown(&self) -> String {
        let mut columns: Vec<(&str, Side)> = Vec::new();
        for cell in &self.results {
            let column = (cell.version.as_str(), cell.side);
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        let mut table = String::from("| expected |");
        for (version, side) in &columns {
            let _ = write!(table, " {}, {version} |", side.as_str());
        }
        table += "\n|---|";
        table += &"---|".repeat(columns.len());
        table.push('\n');
        for scenario in self.scenarios {
            let _ = write!(table, "| {}{} |", scenario.expected, links(scenario));
            for (version, side) in &columns {
                let cell = self
                    .results
                    .iter()
                    .find(|cell| cell.scenario == scenario.name && cell.version == *version && cell.side == *side);
                let _ = write!(table, " {} |", cell.map(|cell| inline(&cell.text())).unwrap_or_default());
            }
            table.push('\n');
        }
        let _ = writeln!(table, "\n{} minutes.", self.took.as_secs().div_ceil(60));
        table
    }
}

/// Returns the links to the public issues of a scenario.
fn links(scenario: &Scenario) -> String {
    let links: Vec<String> = scenario.issues.iter().map(|issue| link(issue)).collect();
    if links.is_empty() { String::new() } else { format!(" ({})", links.join(", ")) }
}

fn link(issue: &str) -> String {
    let (repository, number) = issue.split_once('#').unwrap_or(("kubernetes/autoscaler", issue));
    format!("[#{number}](https://github.com/{repository}/issues/{number})")
}

/// Returns a text that fits in a cell of a table.
fn inline(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// Returns the scenarios, a line each.
pub(crate) fn list(scenarios: &[&Scenario]) -> String {
    let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or_default();
    let lines = scenarios.iter().map(|scenario| format!("{:width$}  {}", scenario.name, scenario.expected));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}
