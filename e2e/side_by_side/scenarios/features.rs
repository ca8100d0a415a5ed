//! Features of Cluster Autoscaler that depend on what a provider says of its node groups.

use anyhow::{Result, ensure};
use e2e::controllers::groups::{Group, Workers};
use serde_json::json;

use super::{Outcome, PATIENCE, growing};
use crate::stage::{Run, Stage};

/// Two groups that differ in nothing but their name.
pub(super) async fn balance(stage: &Stage) -> Result<Outcome> {
    let mut groups = Vec::new();
    for name in ["first", "second"] {
        groups.push(Workers::new(name).sized().create(&stage.testbed).await?);
    }
    let run = stage.start(&stage.access(), growing(), &["--balance-similar-node-groups"]).await?;
    for number in 0..4 {
        stage.pod(&format!("web-{number}"), "3").await?;
    }
    become_sizes(stage, run, &[(&groups[0], 2), (&groups[1], 2)]).await
}

/// The group with the higher priority wastes more.
pub(super) async fn priority_expander(stage: &Stage) -> Result<Outcome> {
    let capacity = |cpu: &str| json!({ "cpu": cpu, "memory": "16Gi", "pods": "110" });
    let small = Workers::new("small").publishing(capacity("4")).create(&stage.testbed).await?;
    let big = Workers::new("big").publishing(capacity("16")).create(&stage.testbed).await?;
    let priorities = json!({
        "kind": "ConfigMap",
        "metadata": { "name": "cluster-autoscaler-priority-expander" },
        "data": { "priorities": "10:\n  - .*/small$\n20:\n  - .*/big$\n" },
    });
    stage.environment.workload.objects("kube-system").create(priorities).await?;
    let run = stage.start(&stage.access(), growing(), &["--expander=priority"]).await?;
    stage.pod("web", "3").await?;
    become_sizes(stage, run, &[(&small, 0), (&big, 1)]).await
}

/// The cheaper group wastes more.
pub(super) async fn price_expander(stage: &Stage) -> Result<Outcome> {
    const PRICE: &str = "capacity.capi-autoscaler-provider.io/price-per-hour";
    let capacity = |cpu: &str| json!({ "cpu": cpu, "memory": "16Gi", "pods": "110" });
    let dear = Workers::new("dear").publishing(capacity("4")).annotate(PRICE, "3.5").create(&stage.testbed).await?;
    let cheap = Workers::new("cheap").publishing(capacity("8")).annotate(PRICE, "0.4").create(&stage.testbed).await?;
    let run = stage.start(&stage.access(), growing(), &["--expander=price"]).await?;
    stage.pod("web", "3").await?;
    become_sizes(stage, run, &[(&dear, 0), (&cheap, 1)]).await
}

async fn become_sizes(stage: &Stage, mut run: Run, expected: &[(&Group, i32)]) -> Result<Outcome> {
    run.turn();
    let sizes = async || -> Result<String> {
        let mut sizes = Vec::new();
        for (group, _) in expected {
            let size = stage.testbed.objects.scale(group.kind, &group.name).await?;
            sizes.push(format!("{} has {size}", group.name));
        }
        Ok(sizes.join(", "))
    };
    let wanted: Vec<String> = expected.iter().map(|(group, size)| format!("{} has {size}", group.name)).collect();
    let wanted = wanted.join(", ");
    let are = run.within(PATIENCE, async || {
        let sizes = sizes().await?;
        ensure!(sizes == wanted, "{sizes}");
        Ok(())
    });
    Ok(Outcome::after(wanted.clone(), are.await))
}
