//! Reads of one group: its size, instances and template; and the RPCs that concern no group.

use rstest::rstest;
use tonic::Code;

use super::{Provider, UNKNOWN, WORKERS, annotated, assert_fails, inner};
use index::Change;

const CAPACITY: [(&str, &str); 2] = [
    ("capacity.cluster-autoscaler.kubernetes.io/cpu", "4"),
    ("capacity.cluster-autoscaler.kubernetes.io/memory", "16Gi"),
];

#[rstest]
#[case::unknown(UNKNOWN)]
#[case::of_another_kind("MachineSet/team-a/workers")]
#[case::a_machine_set_that_is_no_group("MachineSet/team-a/workers-1")]
#[case::empty("")]
#[case::with_a_nul("MachineDeployment/team-a/workers\0")]
#[case::with_a_line_break("MachineDeployment/team-a/wor\r\nkers: x")]
#[case::letters_of_several_bytes("MachineDeployment/team-a/wörkers")]
#[tokio::test]
async fn an_id_of_no_group_is_not_found_by_any_rpc(#[case] id: &str) {
    let mut provider = Provider::pinned(2, &["a"]).await;
    let parts = [id, "<Kind>/<namespace>/<name>"];
    assert_fails(provider.target_size(id).await, Code::NotFound, &parts);
    assert_fails(provider.instances(id).await, Code::NotFound, &parts);
    assert_fails(provider.template(id).await, Code::NotFound, &parts);
    assert_fails(provider.options(id, None).await, Code::NotFound, &parts);
    assert_fails(provider.increase(id, 1).await, Code::NotFound, &[id]);
    assert_fails(provider.decrease(id, -1).await, Code::NotFound, &[id]);
    assert_fails(provider.delete(id, Vec::new()).await, Code::NotFound, &[id]);
    assert!(provider.world.api.calls().is_empty());
}

/// A status is sent in a header. Beyond the limit of headers the whole call fails, not only the message.
#[rstest]
#[case::ascii("x")]
#[case::percent_encoded("ä")]
#[tokio::test]
async fn a_huge_id_is_not_found_like_any_other(#[case] letter: &str) {
    let mut provider = Provider::pinned(2, &["a"]).await;
    let id = format!("MachineDeployment/team-a/{}", letter.repeat(200_000));
    assert_fails(provider.target_size(&id).await, Code::NotFound, &["MachineDeployment/team-a/"]);
    assert_fails(provider.increase(&id, 1).await, Code::NotFound, &["MachineDeployment/team-a/"]);
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 2, "the connection still serves");
}

/// An OK answer with empty bytes makes Cluster Autoscaler panic; UNIMPLEMENTED means "no template".
#[tokio::test]
async fn a_group_without_a_template_is_unimplemented_and_says_what_to_do() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    assert_fails(provider.template(WORKERS).await, Code::Unimplemented, &[WORKERS, "cpu and memory"]);
}

/// Cluster Autoscaler caches it for ever, and requests it before the first Refresh.
#[tokio::test]
async fn the_gpu_label_is_answered_whatever_the_index_holds() {
    let mut provider = Provider::new(1, &[]).await;
    provider.stale("nothing is there yet");
    let answer = inner(provider.client.gpu_label(proto::GpuLabelRequest {}).await).unwrap();
    assert_eq!(answer.label, "cluster-api/accelerator");
}

#[tokio::test]
async fn gpu_types_are_those_that_templates_promise() {
    let gpu = |name, gpu: &str| {
        let pairs = [
            CAPACITY[0],
            CAPACITY[1],
            ("capacity.cluster-autoscaler.kubernetes.io/gpu-type", "nvidia.com/gpu"),
            ("capacity.cluster-autoscaler.kubernetes.io/gpu-count", "1"),
            ("capacity.cluster-autoscaler.kubernetes.io/labels", &format!("cluster-api/accelerator={gpu}")),
        ];
        annotated(name, &pairs)
    };
    let changes: [Change; 4] = [annotated("x", &CAPACITY), gpu("y", "t4"), gpu("z", "a100"), gpu("zz", "t4")];
    let mut provider = Provider::with(changes).await;
    let answer = provider.client.get_available_gpu_types(proto::GetAvailableGpuTypesRequest {}).await;
    let mut types: Vec<_> = inner(answer).unwrap().gpu_types.into_keys().collect();
    types.sort();
    assert_eq!(types, ["a100", "t4"]);
}
