//! The report on the duration of the calls, for people and as JSON.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde::Serialize;

use super::calls::{AllSamples, CaVersion, Fleet, Part, Samples, Style};

/// The duration of the calls.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) ca_version: CaVersion,
    pub(crate) loops: usize,
    pub(crate) groups: usize,
    pub(crate) nodes: usize,
    /// The number of Nodes that belong to a group.
    pub(crate) grouped_nodes: usize,
    /// The calls of the loop by RPC.
    pub(crate) rpcs: Vec<Row>,
    /// All calls of the loop together.
    #[serde(rename = "loop")]
    pub(crate) whole: Row,
    /// The empty calls by RPC: as many as the loop's calls, unless the flags limit them.
    pub(crate) empty: Vec<Row>,
    /// NodeGroupNodes of each group, which Cluster Autoscaler calls every 2 minutes and not in each loop.
    pub(crate) instances: Option<Row>,
}

/// Calls of a kind.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) rpc: String,
    pub(crate) n: usize,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    pub(crate) total_millis: f64,
    /// The mean divided by the mean of the empty calls, by their RPC.
    pub(crate) ratio: BTreeMap<String, f64>,
    /// The answers that were errors, by code.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) errors: BTreeMap<String, usize>,
}

impl Report {
    pub(crate) fn new(style: Style, fleet: &Fleet, loops: usize, samples: &AllSamples) -> Self {
        let of = |part| samples.iter().filter(move |((other, _), _)| *other == part).map(|((_, rpc), it)| (*rpc, it));
        let means: BTreeMap<_, _> = of(Part::Empty).map(|(rpc, it)| (rpc.to_owned(), mean(it))).collect();
        let mut whole = Samples::default();
        for (_, samples) in of(Part::Loop) {
            whole.took.extend(&samples.took);
            for (code, errors) in &samples.errors {
                *whole.errors.entry(code.clone()).or_default() += errors;
            }
        }
        Self {
            ca_version: style.version,
            loops,
            groups: fleet.groups,
            nodes: fleet.nodes.len(),
            grouped_nodes: fleet.grouped,
            rpcs: of(Part::Loop).map(|(rpc, samples)| Row::new(rpc, samples, &means)).collect(),
            whole: Row::new("loop", &whole, &means),
            empty: of(Part::Empty).map(|(rpc, samples)| Row::new(rpc, samples, &BTreeMap::new())).collect(),
            instances: of(Part::Instances).next().map(|(rpc, samples)| Row::new(rpc, samples, &means)),
        }
    }

    pub(crate) fn table(&self) -> String {
        let loops = if self.loops == 1 { "loop" } else { "loops" };
        let mut text = format!(
            "Cluster Autoscaler {}, {} groups, {} Nodes ({} of a group), {} {loops}\n\n",
            self.ca_version, self.groups, self.nodes, self.grouped_nodes, self.loops
        );
        let ratios: Vec<_> = self.whole.ratio.keys().map(|rpc| format!("× {rpc}")).collect();
        let _ = write!(text, "{:<28}{:>9}{:>10}{:>10}{:>12}", "RPC", "N", "P50 µs", "P99 µs", "TOTAL ms");
        for ratio in &ratios {
            let _ = write!(text, "{ratio:>12}");
        }
        text.push('\n');
        let mut row = |name: &str, row: &Row| {
            let _ = write!(
                text,
                "{name:<28}{:>9}{:>10.1}{:>10.1}{:>12.1}",
                row.n, row.p50_micros, row.p99_micros, row.total_millis
            );
            for ratio in row.ratio.values() {
                let _ = write!(text, "{ratio:>12.2}");
            }
            for (code, errors) in &row.errors {
                let _ = write!(text, "   {errors} × {code}");
            }
            text.push('\n');
        };
        for rpc in &self.rpcs {
            row(&rpc.rpc, rpc);
        }
        row("the whole loop", &self.whole);
        for empty in &self.empty {
            row(&format!("{}, empty", empty.rpc), empty);
        }
        if let Some(instances) = &self.instances {
            row("NodeGroupNodes, every 2 min", instances);
        }
        text
    }
}

impl Row {
    fn new(rpc: &str, samples: &Samples, empty: &BTreeMap<String, f64>) -> Self {
        let mut took = samples.took.clone();
        took.sort_unstable();
        let ratio = empty.iter().map(|(rpc, empty)| (rpc.clone(), mean(samples) / empty)).collect();
        Self {
            rpc: rpc.to_owned(),
            n: took.len(),
            p50_micros: micros(quantile(&took, 50)),
            p99_micros: micros(quantile(&took, 99)),
            total_millis: took.iter().sum::<Duration>().as_secs_f64() * 1e3,
            ratio,
            errors: samples.errors.clone(),
        }
    }
}

/// Returns the mean duration of a call in seconds.
fn mean(samples: &Samples) -> f64 {
    let count = u32::try_from(samples.took.len()).unwrap_or(u32::MAX).max(1);
    (samples.took.iter().sum::<Duration>() / count).as_secs_f64()
}

/// Returns the duration that this percentage of the sorted `took` doesn't exceed.
fn quantile(took: &[Duration], percent: usize) -> Duration {
    let rank = (took.len() * percent).div_ceil(100);
    took.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
