//! The complete replies for representative Machines as one text, so that no answer changes unnoticed.

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

fn not_ready(reason: &str, message: &str) -> Value {
    json!({"phase": "Provisioning", "conditions": [{
        "type": "InfrastructureReady", "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": LONG_AGO,
    }]})
}

/// Every kind of Machine, in a group whose size allows all of them to be deleted.
#[tokio::test]
async fn of_machines() {
    let failure = json!({"failureReason": "CreateError", "failureMessage": "the server could not be made"});
    let with = |status: &Value, more: &Value| {
        let mut status = status.clone();
        objects::merge(&mut status, more);
        status
    };
    let machines = [
        ("pending", json!({"phase": "Provisioning"})),
        ("failed", with(&failure, &json!({"phase": "Failed"}))),
        ("failed-by-its-phase-alone", json!({"phase": "Failed"})),
        (
            "failed-for-want-of-resources",
            json!({"phase": "Failed", "failureReason": "InsufficientResources", "failureMessage": "none left"}),
        ),
        ("with-a-failure-while-provisioning", with(&failure, &json!({"phase": "Provisioning"}))),
        ("with-a-reason-while-provisioning", json!({"phase": "Provisioning", "failureReason": "CreateError"})),
        ("with-a-deprecated-failure", json!({"phase": "Provisioning", "deprecated": {"v1beta1": failure}})),
        ("with-a-failure-and-a-node", with(&failure, &json!({"phase": "Running", "nodeRef": {"name": "n"}}))),
        ("not-ready", not_ready("WaitingForInfrastructure", "0 of 2 completed")),
        ("no-host", not_ready("NotReady", "No available host found. Requeuing.")),
        ("no-capacity", not_ready("NotReady", "InsufficientInstanceCapacity: no m5.large left")),
        ("no-quota", not_ready("QuotaExceeded", "no cores left")),
        (
            "no-such-type",
            not_ready(
                "InstanceProvisionFailed",
                "Unsupported: Your requested instance type (m9.large) is not supported in your requested Availability Zone",
            ),
        ),
        ("throttled", not_ready("NotReady", "Quota exceeded for quota metric 'Queries per minute'")),
        ("without-its-infrastructure", not_ready("Deleted", "CloudMachine has been deleted")),
    ];
    let mut changes = vec![
        objects::deployment("machines", 20, ("0", "30"), &objects::capacity_annotations("4", "16Gi")),
        objects::set_of("machines", "machines-1"),
        objects::joined("MachineSet/machines-1", "running"),
        objects::machine(
            "MachineSet/machines-1",
            "deleting",
            &json!({"metadata": {"deletionTimestamp": LONG_AGO}, "status": not_ready("Deleted", "it is deleted")}),
        ),
        objects::machine(
            "MachineSet/machines-1",
            "failed-and-deleting",
            &json!({"metadata": {"deletionTimestamp": LONG_AGO}, "status": with(&failure, &json!({"phase": "Failed"}))}),
        ),
    ];
    // Its condition has no time, as if it had appeared under the watch.
    let now = json!({"conditions": [{
        "type": "InfrastructureReady", "status": "False", "reason": "NotReady", "message": "No available host found.",
    }]});
    changes.push(objects::machine("MachineSet/machines-1", "no-host-since-now", &json!({"status": now})));
    changes.extend(machines.map(|(name, status)| {
        let more = json!({"spec": {"providerID": format!("cloud:///zone/{name}")}, "status": status});
        objects::machine("MachineSet/machines-1", name, &more)
    }));
    let mut provider = Provider::with(changes).await;
    insta::assert_snapshot!(replies(&mut provider).await);
}
