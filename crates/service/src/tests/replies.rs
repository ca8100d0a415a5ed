//! The complete replies for Machines in each state as one text, so that no answer changes unnoticed. The states of real
//! Machines are a rule of `rules::instance`.

use std::fmt::Write as _;

use k8s_pb::api::core::v1 as pb;
use prost::Message as _;
use serde_json::{Value, json};

use super::{Provider, inner};
use index::objects;

/// A time so long ago that every pause is over.
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

/// Returns the replies of the RPCs for each group.
async fn replies(provider: &mut Provider) -> String {
    let mut text = String::new();
    let groups = inner(provider.client.node_groups(proto::NodeGroupsRequest {}).await).unwrap().node_groups;
    for group in groups {
        writeln!(text, "{}: {}..{}, {:?}", group.id, group.min_size, group.max_size, group.debug).unwrap();
        writeln!(text, "  target size {:?}", provider.target_size(&group.id).await).unwrap();
        for instance in provider.instances(&group.id).await.unwrap() {
            writeln!(text, "  {}", of_instance(&instance)).unwrap();
        }
        writeln!(text, "  options {:?}", provider.options(&group.id, None).await).unwrap();
        match provider.template(&group.id).await {
            Ok(answer) => text.push_str(&of_template(&answer)),
            Err(status) => writeln!(text, "  template: {:?}", status.code()).unwrap(),
        }
    }
    text
}

fn of_instance(instance: &proto::Instance) -> String {
    let status = instance.status.as_ref().unwrap();
    let error = status.error_info.as_ref().map_or_else(String::new, |error| {
        format!(", error {} of class {}: {}", error.error_code, error.instance_error_class, error.error_message)
    });
    format!("{} {:?}{error}", instance.id, status.instance_state())
}

fn of_template(answer: &proto::NodeGroupTemplateNodeInfoResponse) -> String {
    assert_eq!(answer.node_info, answer.node_bytes);
    let node = pb::Node::decode(answer.node_bytes.clone()).unwrap();
    let (metadata, status) = (node.metadata.unwrap(), node.status.unwrap());
    let mut text = String::new();
    for (key, value) in metadata.labels {
        writeln!(text, "  label {key}={value}").unwrap();
    }
    for (name, capacity) in &status.capacity {
        let of_pods = status.allocatable[name].string();
        writeln!(text, "  resource {name}: {}, for pods {of_pods}", capacity.string()).unwrap();
    }
    let conditions: Vec<_> = status.conditions.iter().map(|it| format!("{}={}", it.r#type(), it.status())).collect();
    writeln!(text, "  conditions {}", conditions.join(" ")).unwrap();
    text
}

/// Each state and error of an instance, in a group whose size allows all Machines to be deleted.
#[tokio::test]
async fn of_machines() {
    let failed = json!({
        "phase": "Failed", "failureReason": "CreateError", "failureMessage": "the server could not be made",
    });
    let without_quota = json!({"phase": "Provisioning", "conditions": [{
        "type": "InfrastructureReady", "status": "False", "reason": "QuotaExceeded", "message": "no cores left",
        "lastTransitionTime": LONG_AGO,
    }]});
    let machine = |name: &str, deleted: Option<&str>, status: &Value| {
        let spec = json!({"providerID": format!("cloud:///zone/{name}")});
        let more = json!({"metadata": {"deletionTimestamp": deleted}, "spec": spec, "status": status});
        objects::machine("MachineSet/machines-1", name, &more)
    };
    let mut provider = Provider::with([
        objects::deployment("machines", 6, ("0", "30"), &objects::capacity_annotations("4", "16Gi")),
        objects::set_of("machines", "machines-1"),
        objects::joined("MachineSet/machines-1", "running"),
        machine("pending", None, &json!({"phase": "Provisioning"})),
        machine("failed", None, &failed),
        machine("no-quota", None, &without_quota),
        machine("deleting", Some(LONG_AGO), &json!({"phase": "Deleting"})),
        machine("failed-and-deleting", Some(LONG_AGO), &failed),
    ])
    .await;
    insta::assert_snapshot!(replies(&mut provider).await);
}
