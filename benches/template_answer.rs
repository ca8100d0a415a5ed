//! Template calls over a real connection to the service, alternating with empty calls on the same connection, so that
//! other load on the machine affects both alike. It fails when a template's median costs more than 1.5 times an empty
//! call's.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used)]

mod fleet;
#[path = "fleet/service.rs"]
mod service;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use index::{Change, Index};
use proto::{
    GpuLabelRequest, NodeGroupTemplateNodeInfoRequest, RefreshRequest, cloud_provider_client::CloudProviderClient,
};
use rules::capi::{Context, Meta, ObjectKey, ScalableKind, ScalableResource};
use serde_json::json;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

const GROUPS: usize = 200;
const ROUNDS: usize = 100;
const LIMIT: f64 = 1.5;

/// Returns a group like real ones: a dozen labels, taints, GPUs.
fn group(context: &Context, number: usize) -> Change {
    let prefix = "capacity.cluster-autoscaler.kubernetes.io";
    let labels: Vec<_> = (0..12).map(|label| format!("team-{label}.example.com/purpose=batch-{number}")).collect();
    let annotations = json!({
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "100",
        (format!("{prefix}/cpu")): "8",
        (format!("{prefix}/memory")): "32Gi",
        (format!("{prefix}/ephemeral-disk")): "100Gi",
        (format!("{prefix}/gpu-type")): "nvidia.com/gpu",
        (format!("{prefix}/gpu-count")): "2",
        (format!("{prefix}/labels")): labels.join(","),
        (format!("{prefix}/taints")): "dedicated=batch:NoSchedule,spot:NoExecute",
        "capacity.capi-autoscaler-provider.io/overhead": "cpu=100m,memory=800Mi",
    });
    let meta = Meta {
        key: ObjectKey::new("fleet", format!("rich-{number}")),
        uid: format!("uid-{number}").into(),
        resource_version: "1".into(),
    };
    let value = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 0}});
    let object = ScalableResource::decode(ScalableKind::MachineDeployment, meta, &value, context);
    Change::Scalable(Arc::new(object.expect("the object decodes")))
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took.get(took.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let writes = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let shutdown = CancellationToken::new();
    let index = Index::new(fleet::rules());
    fleet::fill(&index, GROUPS, 5);
    let context = Context::new("cluster.x-k8s.io");
    for number in 0..GROUPS {
        index.apply(group(&context, number));
    }
    index.refresh();
    let server = service::serve(index, writes.handle(), &shutdown);
    let address = format!("http://{}", server.address());
    let client = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut templates, mut refreshes, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    client.block_on(async {
        let mut client = CloudProviderClient::connect(address).await.expect("a connection");
        for round in 0..ROUNDS {
            for number in 0..GROUPS {
                let id = format!("MachineDeployment/fleet/rich-{number}");
                let began = Instant::now();
                let answer = client.node_group_template_node_info(NodeGroupTemplateNodeInfoRequest { id }).await;
                let template = began.elapsed();
                bytes = answer.expect("a template").get_ref().node_bytes.len();
                let began = Instant::now();
                client.refresh(RefreshRequest {}).await.expect("an answer");
                let refresh = began.elapsed();
                let began = Instant::now();
                client.gpu_label(GpuLabelRequest {}).await.expect("an answer");
                let label = began.elapsed();
                // The first round warms up.
                if round > 0 {
                    templates.push(template);
                    refreshes.push(refresh);
                    labels.push(label);
                }
            }
        }
    });
    shutdown.cancel();
    let calls = templates.len();
    let (template, refresh, label) = (median(templates), median(refreshes), median(labels));
    let ratio = template.as_secs_f64() / refresh.as_secs_f64();
    println!(
        "{calls} calls of each, medians: template of {bytes} bytes (sent twice) {template:?}, Refresh {refresh:?}, GPULabel {label:?}"
    );
    println!("a template costs {ratio:.2} Refresh, {:.2} GPULabel", template.as_secs_f64() / label.as_secs_f64());
    assert!(ratio <= LIMIT, "a template answer costs more than {LIMIT} empty calls");
}
