//! `check`: predicts whether `serve` would work with the same flags. It checks clusters, versions, permissions, scope,
//! node groups and certificates. It must never write anything but dry runs, and a failed check must not hide others.

mod args;
mod clusters;
mod files;
mod fleet;
mod groups;
pub mod needed_rights;
mod report;
mod reviews;
mod rights;
mod text;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use jiff::Timestamp;

use self::needed_rights::{Needs, Side, not_served};
pub use self::{
    args::{CheckArgs, CheckOutput},
    report::CheckId,
};
use self::{
    clusters::Clusters,
    report::{Findings, Report},
};
use super::{
    CliError, OneCluster,
    live_index::LiveIndex,
    printing::{json, print, yaml},
    usage::given,
    values::timeout,
};
use app::IndexConfig;
use connect::WorkloadSource;

/// The remaining validity below which a certificate should be renewed.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

impl CheckArgs {
    /// Runs the checks and prints the report. It fails if a check failed, or with `--strict` if there is a warning.
    pub(super) fn run(self) -> Result<(), CliError> {
        let patience = timeout(&self.timeout)?;
        let server_name = given(self.server_name.as_deref());
        let cluster = OneCluster::try_from(self.serve)?;
        let runtime = tokio::runtime::Runtime::new().context("can't check")?;
        let report = runtime.block_on(examine(&cluster, server_name, patience));
        // Tasks that hang are abandoned.
        runtime.shutdown_background();
        print(&match self.output {
            CheckOutput::Text => text::text(&report, self.verbose, self.color.is_on()),
            CheckOutput::Json => json(&report)?,
            CheckOutput::Yaml => yaml(&report)?,
        })?;
        Ok(verdict(&report, self.strict)?)
    }
}

fn verdict(report: &Report, strict: bool) -> anyhow::Result<()> {
    ensure!(report.errors == 0, "{} of {} checks failed", report.errors, report.checks.len());
    ensure!(!strict || report.warnings == 0, "{} warnings, and --strict takes none", report.warnings);
    Ok(())
}

async fn examine(cluster: &OneCluster, server_name: Option<&str>, patience: Duration) -> Report {
    let until = Instant::now() + patience;
    let mut findings = Findings::default();
    let serve = &cluster.config;
    files::flags(&mut findings, &serve.warnings);
    let prices = files::prices(&mut findings, serve.prices.as_deref());
    let now = Timestamp::now();
    files::tls(&mut findings, serve.tls.as_ref(), (&serve.listen, server_name), now);

    let clusters = Clusters::reach(&mut findings, serve, until).await;
    let mut needs = Needs {
        group: serve.rules.keys.group.clone(),
        namespaces: serve.rules.scope.namespaces(),
        not_served: not_served(clusters.core.as_ref()),
        templates: Vec::new(),
        bootstrap: Vec::new(),
        remember: serve.remember.clone(),
        secret: serve.workload.secret().cloned(),
        without_nodes: serve.workload == WorkloadSource::None,
        writes: !serve.scale.read_only,
        events: serve.events,
    };
    let mut reviews = reviews::review_all(&clusters, needs.rights(), until).await;
    if let (Some(management), Some(core)) = (&clusters.management, &clusters.core) {
        let mut rules = serve.rules.clone();
        rules.prices = prices;
        let config = IndexConfig { rules, ..serve.index() };
        let live = LiveIndex::start(management.clone(), config, patience);
        let inspection = groups::Inspection::read(&live, (&reviews, core), clusters.workload.is_some(), until).await;
        needs.templates = clusters::template_resources(management, &inspection.kinds(), until).await;
        needs.bootstrap = clusters::template_resources(management, &inspection.bootstrap_kinds(), until).await;
        let known: Vec<_> = reviews.iter().map(|review| review.right.clone()).collect();
        let further = needs.rights().into_iter().filter(|right| !known.contains(right)).collect();
        reviews.extend(reviews::review_all(&clusters, further, until).await);
        rights::judge(&mut findings, &reviews, Some(&inspection));
        if serve.scale.read_only {
            findings.skip(CheckId::SizeWrite, "nothing is written, by --read-only");
        } else {
            groups::judge(&mut findings, (management, core), (&reviews, &inspection), until).await;
        }
        inspection.judge(&mut findings, &serve.rules);
        let clusters = groups::named_clusters(&serve.rules.scope);
        for (cluster, selector) in clusters.zip(&cluster.fleet) {
            fleet::judge(&mut findings, (management, core), (&cluster, selector), until).await;
        }
        live.end().await;
    } else {
        rights::judge(&mut findings, &reviews, None);
        groups::skip(
            &mut findings,
            if clusters.management.is_some() { CheckId::ClusterApi } else { CheckId::ManagementCluster },
        );
    }
    for side in [Side::Management, Side::Workload] {
        if clusters.of(side).is_none() && !(side == Side::Workload && needs.without_nodes) {
            findings.skip(CheckId::Right, format!("rights in the {} cluster: it isn't reached", side.as_str()));
        }
    }
    Report::from(findings.0)
}
