//! `explain`: the answers that Cluster Autoscaler gets about node groups, the source of each value, and the problems.
//! It reads clusters, or manifests without any cluster, into the index that a server would answer from. It must write
//! nothing.

mod config;
mod live;
mod manifests;
mod node;
mod select;
#[cfg(test)]
mod tests;
mod text;

use std::{collections::HashMap, sync::Arc};

use anyhow::{Context as _, anyhow, ensure};

pub use self::config::ExplainArgs;
pub(super) use self::config::ExplainConfig;
use self::{config::Output, manifests::IndexFeed};
use super::{
    CliError,
    printing::{self, print},
};
use app::prices::PriceFile;
use index::{Detail, Index, Served};
use page::state::explain::{Explained, Report, SCHEMA_VERSION, explained};
use rules::{GroupId, text::visible};

/// The result of reading clusters or manifests, besides the index.
#[derive(Debug, Default)]
struct ReadResult {
    /// Facts about a group beyond the index.
    notes: HashMap<GroupId, Vec<String>>,
    /// Problems other than those of the groups.
    warnings: Vec<String>,
    /// The number of warnings that make the verdict an error.
    broken: usize,
    skipped: Vec<String>,
}

/// The report to print, and the input of the verdict.
#[derive(Debug)]
struct Findings {
    report: Report,
    /// The node groups of the report.
    served: Vec<(GroupId, Arc<Served>)>,
    broken: usize,
}

impl ExplainConfig {
    /// Explains and prints. An error is the verdict, or there is no verdict since something can't be read.
    pub(super) fn run(mut self) -> Result<(), CliError> {
        for warning in &self.warnings {
            eprintln!("warning: {}", visible(warning));
        }
        let findings = self.findings().map_err(CliError::NoVerdict)?;
        for warning in &findings.report.warnings {
            eprintln!("warning: {}", visible(warning));
        }
        for skipped in &findings.report.skipped {
            eprintln!("skipped: {}", visible(skipped));
        }
        let printed = findings.render(self.output, self.color.is_on()).and_then(|text| print(&text));
        printed.map_err(CliError::NoVerdict)?;
        Ok(findings.verdict()?)
    }

    fn findings(&mut self) -> anyhow::Result<Findings> {
        self.load_prices()?;
        if self.manifests.is_empty() { self.of_clusters() } else { self.of_manifests() }
    }

    fn load_prices(&mut self) -> anyhow::Result<()> {
        if let Some(path) = &self.index.prices {
            let (_, prices) = PriceFile::open(path)?;
            self.index.rules.prices = prices;
        }
        Ok(())
    }

    fn of_manifests(&self) -> anyhow::Result<Findings> {
        let namespace = self.selection.namespace.as_deref().unwrap_or("default");
        let manifests = manifests::read(&self.manifests, namespace)?;
        let IndexFeed { index, unreadable, notes } =
            manifests::fed(&manifests, self.index.rules.clone(), &self.index.remember);
        let broken = manifests.broken.len() + unreadable.len();
        let warnings = [manifests.warnings, manifests.broken, unreadable].concat();
        self.explain(&index, ReadResult { notes, warnings, broken, skipped: manifests.skipped })
    }

    fn of_clusters(&self) -> anyhow::Result<Findings> {
        let runtime = tokio::runtime::Runtime::new().context("can't run")?;
        runtime.block_on(async {
            let live = live::read(self.index.clone(), self.timeout).await?;
            let explained = self.explain(live.index(), ReadResult::default());
            live.end().await;
            explained
        })
    }

    fn explain(&self, index: &Index, read: ReadResult) -> anyhow::Result<Findings> {
        let mut snapshot = index.snapshot(None, Detail::Counts);
        snapshot.groups.sort_by(|a, b| a.id.cmp(&b.id));
        let ids: Vec<_> = snapshot.groups.iter().map(|group| group.id.clone()).collect();
        let chosen = self.selection.chosen(&ids)?;
        let mut report = Report {
            schema_version: SCHEMA_VERSION,
            warnings: read.warnings,
            skipped: read.skipped,
            ..Report::default()
        };
        let mut served = Vec::new();
        for group in snapshot.groups.iter().zip(chosen).filter_map(|(group, chosen)| chosen.then_some(group)) {
            let notes = read.notes.get(&group.id).map(Vec::as_slice).unwrap_or_default();
            match explained(group, notes, &self.index.rules.keys) {
                Some(Explained::Group(group)) => report.groups.push(*group),
                // A user who names an object wants to know why it is left out, whatever the reason.
                Some(Explained::LeftOut(object))
                    if object.invalid || self.selection.all || !self.selection.ids.is_empty() =>
                {
                    report.left_out.push(*object);
                }
                Some(Explained::LeftOut(_)) | None => {}
            }
            if let Ok(of_group) = &group.standing {
                served.push((group.id.clone(), Arc::clone(of_group)));
            }
        }
        // If node groups are named, only they are reported, and an object that can't be read may not be one of them.
        let broken = if self.selection.ids.is_empty() { read.broken } else { 0 };
        Ok(Findings { report, served, broken })
    }
}

impl Findings {
    fn render(&self, output: Output, coloured: bool) -> anyhow::Result<String> {
        match output {
            Output::Text => Ok(text::text(&self.report, coloured)),
            Output::Json => printing::json(&self.report),
            Output::Yaml => printing::yaml(&self.report),
            Output::Node => {
                let nodes = self.nodes()?;
                let documents: Result<Vec<_>, _> = nodes.iter().map(printing::yaml).collect();
                Ok(documents?.join("---\n"))
            }
        }
    }

    /// Returns the Nodes of the groups whose template is known.
    fn nodes(&self) -> anyhow::Result<Vec<serde_json::Value>> {
        let nodes = self.served.iter().filter_map(|(id, served)| Some((id, served.template.as_ref()?)));
        nodes.map(|(id, sent)| node::node(sent).map_err(|why| anyhow!("can't write it: {id}: {why}"))).collect()
    }

    /// Returns an error unless everything that was explained is valid.
    fn verdict(&self) -> anyhow::Result<()> {
        let of = |count, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let parts = [
            of(self.report.invalid(), "node group is invalid", "node groups are invalid"),
            of(self.broken, "object can't be read", "objects can't be read"),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        ensure!(parts.is_empty(), "{}", visible(&parts.join("; ")));
        Ok(())
    }
}
