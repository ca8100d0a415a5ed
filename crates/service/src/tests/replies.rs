//! The complete replies for representative Machines and Nodes as one text, so that no answer changes unnoticed.

use std::fmt::Write as _;

use k8s_pb::api::core::v1 as pb;
use prost::Message as _;
use serde_json::{Value, json};

use super::{Provider, inner};
use index::{Change, objects};

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
    let (metadata, spec, status) = (node.metadata.unwrap(), node.spec.unwrap(), node.status.unwrap());
    let mut text = String::new();
    for (key, value) in metadata.labels {
        writeln!(text, "  label {key}={value}").unwrap();
    }
    for taint in spec.taints {
        writeln!(text, "  taint {}={}:{}", taint.key(), taint.value(), taint.effect()).unwrap();
    }
    for (name, capacity) in &status.capacity {
        let of_pods = status.allocatable[name].string();
        writeln!(text, "  resource {name}: {}, for pods {of_pods}", capacity.string()).unwrap();
    }
    for feature in &status.declared_features {
        writeln!(text, "  feature {feature}").unwrap();
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
        objects::deployment("machines", 20, ("0", "30"), &json!({})),
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

fn gone(name: &str) -> Vec<Change> {
    vec![Change::NodeGone(name.into()), Change::MachineGone(rules::capi::ObjectKey::new(objects::NAMESPACE, name))]
}

/// Returns a MachineDeployment with these annotations, and its MachineSet.
fn fielded(name: &str, replicas: i32, annotations: &Value) -> [Change; 2] {
    let more = json!({"metadata": {"annotations": annotations}});
    [objects::deployment(name, replicas, ("0", "9"), &more), objects::set_of(name, &format!("{name}-1"))]
}

fn pool(name: &str, replicas: i32, listed: &[&str], more: &Value) -> Change {
    let mut all = objects::capacity_annotations("4", "16Gi");
    objects::merge(&mut all, &json!({"spec": {"providerIDList": listed}}));
    objects::merge(&mut all, more);
    objects::scalable(rules::capi::ScalableKind::MachinePool, name, replicas, ("0", "9"), &all)
}

/// What people have in the field.
#[tokio::test]
async fn of_the_field() {
    let capacity = |more: &Value| {
        let mut all = json!({"capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
            "capacity.cluster-autoscaler.kubernetes.io/memory": "64Gi"});
        objects::merge(&mut all, more);
        all
    };
    let labels = json!({"node.cluster.x-k8s.io/team": "db", "team": "db"});
    let labelled = json!({"spec": {"template": {"metadata": {"labels": labels}}}});
    let quota = json!([{"type": "InfrastructureReady", "status": "False", "reason": "Failed",
        "message": "scalesets failed to create or update. err: QuotaExceeded", "lastTransitionTime": LONG_AGO}]);
    let mut changes = vec![
        pool("01-with-machines", 1, &["cloud:///zone/p"], &labelled),
        objects::joined("MachinePool/01-with-machines", "p"),
        pool(
            "10-sized-by-another",
            2,
            &[],
            &json!({"metadata": {"annotations": {"cluster.x-k8s.io/replicas-managed-by": "x"}}}),
        ),
        objects::deployment(
            "10-of-karpenter",
            1,
            ("0", "9"),
            &json!({"metadata": {"labels": {"node.cluster.x-k8s.io/karpenter-member": ""}}}),
        ),
        pool(
            "14-without-quota",
            3,
            &["cloud:///zone/q"],
            &json!({"status": {"deprecated": {"v1beta1": {"conditions": quota}}}}),
        ),
    ];
    changes.extend(fielded(
        "02-huge-pages",
        0,
        &capacity(&json!({"capacity.capi-autoscaler-provider.io/resources": "hugepages-2Mi=32Gi"})),
    ));
    changes.extend(fielded("03-volumes-of-a-zone", 1, &capacity(&json!({}))));
    let amounts = json!({"cpu": "4", "memory": "64Gi"});
    let labels = json!({"topology.ebs.csi.aws.com/zone": "eu-1a", "team": "db", "kubernetes.io/hostname": "n"});
    let status =
        json!({"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]});
    changes.push(objects::joined("MachineSet/03-volumes-of-a-zone-1", "n"));
    changes.push(objects::node("n", &json!({"metadata": {"labels": labels}, "status": status})));
    changes.extend(gone("n"));
    changes.extend(fielded("03-of-windows", 1, &capacity(&json!({}))));
    let labels = json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348"});
    let mut declaring = status.clone();
    declaring["declaredFeatures"] = json!(["GuaranteedQoSPodCPUResize"]);
    changes.push(objects::joined("MachineSet/03-of-windows-1", "w"));
    changes.push(objects::node("w", &json!({"metadata": {"labels": labels}, "status": declaring})));
    changes.extend(gone("w"));
    // Sizes of huge pages are alike among groups of one architecture, which no other group here has.
    let of_arm = capacity(&json!({"capacity.cluster-autoscaler.kubernetes.io/labels": "kubernetes.io/arch=arm64"}));
    changes.extend(["05-no-huge-pages", "05-without-a-node"].iter().flat_map(|name| fielded(name, 1, &of_arm)));
    let mut without_pages = status;
    for of in ["capacity", "allocatable"] {
        objects::merge(&mut without_pages[of], &json!({"hugepages-2Mi": "0", "hugepages-64Ki": "0"}));
    }
    changes.push(objects::joined("MachineSet/05-no-huge-pages-1", "h"));
    let labels = json!({"kubernetes.io/arch": "arm64"});
    changes.push(objects::node("h", &json!({"metadata": {"labels": labels}, "status": without_pages})));
    let gpus = json!({"capacity.cluster-autoscaler.kubernetes.io/gpu-count": "13Mi", "capacity.cluster-autoscaler.kubernetes.io/gpu-type": "nvidia.com/gpu"});
    changes.extend(fielded("06-gpus-in-bytes", 0, &capacity(&gpus)));
    let without_unit = json!({"capacity.cluster-autoscaler.kubernetes.io/memory": "16384"});
    changes.extend(fielded("06-memory-without-a-unit", 0, &capacity(&without_unit)));
    let no_gpu = json!({"capacity.cluster-autoscaler.kubernetes.io/gpu-count": "0", "capacity.cluster-autoscaler.kubernetes.io/gpu-type": ""});
    changes.extend(fielded("06-no-gpu", 0, &capacity(&no_gpu)));
    changes.extend(fielded("11-id-in-two-forms", 1, &json!({})));
    let of_azure = |slashes: &str| format!("azure:{slashes}subscriptions/s/virtualMachines/v");
    let machine =
        json!({"spec": {"providerID": of_azure("///")}, "status": {"phase": "Running", "nodeRef": {"name": "v"}}});
    changes.push(objects::machine("MachineSet/11-id-in-two-forms-1", "v", &machine));
    changes.push(objects::node("v", &json!({"spec": {"providerID": of_azure("////")}})));
    changes.extend(fielded(
        "12-zero-or-max",
        1,
        &json!({"cluster.x-k8s.io/autoscaling-options-zeroormaxnodescaling": "true"}),
    ));
    changes.extend(fielded("14-and-18-machines", 2, &json!({})));
    let words = "* VirtualMachineProvisioned: cannot reserve 2B of memory on node h: 1B available memory left";
    let of_machine =
        |name, status: Value| objects::machine("MachineSet/14-and-18-machines-1", name, &json!({ "status": status }));
    changes.push(of_machine("no-memory", not_ready("NotReady", words)));
    changes.push(of_machine("terminated", not_ready("InstanceTerminated", "it was terminated")));
    let mut provider = Provider::with(changes).await;
    let mut text = replies(&mut provider).await;
    let unregistered = proto::ExternalGrpcNode {
        annotations: super::annotations(&[("k8s.io/cluster-autoscaler/fake-node-reason", "unregistered")]),
        ..super::unregistered(&of_azure("///"))
    };
    let deleted = provider.delete("MachineDeployment/team-a/11-id-in-two-forms", vec![unregistered]).await;
    writeln!(
        text,
        "DeleteNodes of an unregistered instance whose Node is there: {:?}",
        deleted.map_err(|it| it.code())
    )
    .unwrap();
    insta::assert_snapshot!(text);
}
