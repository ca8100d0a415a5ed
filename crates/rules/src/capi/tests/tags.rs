//! Tests that read the name of an object's Cluster, including from objects that don't decode.

use super::*;

const LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// Returns the Cluster's name and `true` if the object decodes, otherwise the salvaged name and `false`.
fn cluster_of<T>(projection: &Projection<T>, object: &Value, name: impl Fn(&T) -> &ArcStr) -> (String, bool) {
    let read = projection.read(&object.to_string(), &Interner::default()).unwrap();
    match &read.content {
        Ok(object) => (name(object).to_string(), true),
        Err(error) => (error.salvaged().map(ToString::to_string).unwrap_or_default(), false),
    }
}

#[rstest]
#[case::spec(json!({"clusterName": "stage"}), json!({}), "stage")]
#[case::label(json!({}), json!({LABEL: "stage"}), "stage")]
#[case::spec_before_label(json!({"clusterName": "stage"}), json!({LABEL: "other"}), "stage")]
#[case::empty_spec(json!({"clusterName": ""}), json!({LABEL: "stage"}), "stage")]
#[case::odd_spec(json!({"clusterName": 5}), json!({LABEL: "stage"}), "stage")]
#[case::empty_label(json!({}), json!({LABEL: ""}), "")]
#[case::none(json!({}), json!({"other": "stage"}), "")]
fn a_machine_names_its_cluster_decoded_or_not(#[case] spec: Value, #[case] labels: Value, #[case] expected: &str) {
    let projection = Machine::projection(&Context::new(DEFAULT_GROUP));
    let cluster_of = |status: Value| {
        let object =
            json!({"metadata": {"name": "a", "labels": labels.clone()}, "spec": spec.clone(), "status": status});
        cluster_of(&projection, &object, |machine| &machine.cluster_name)
    };
    assert_eq!(cluster_of(json!({"phase": "Running"})), (expected.to_owned(), true));
    assert_eq!(cluster_of(json!({"phase": ["odd"]})), (expected.to_owned(), false));
}

#[rstest]
#[case::labelled(json!({"labels": {"autoscaler": "fleet"}}), true)]
#[case::another_value(json!({"labels": {"autoscaler": "own"}}), false)]
#[case::beside_a_long_label(json!({"labels": {"autoscaler": "fleet", "other": "x".repeat(200_000)}}), true)]
#[case::a_long_value(json!({"labels": {"autoscaler": "fleet".repeat(40_000)}}), false)]
#[case::no_labels(json!({}), false)]
#[case::an_annotation(json!({"annotations": {"autoscaler": "fleet"}}), false)]
fn a_cluster_is_selected_by_its_labels(#[case] mut metadata: Value, #[case] expected: bool) {
    metadata["name"] = "stage".into();
    let object = json!({"metadata": metadata, "spec": {"paused": true}});
    let read = |projection: &Projection<Cluster>| {
        let read = projection.read(&object.to_string(), &Interner::default()).unwrap();
        (**read.content.as_ref().unwrap()).clone()
    };
    let selecting =
        Cluster::projection_selecting(|labels| labels.get("autoscaler").is_some_and(|value| value == "fleet"));
    let selected = read(&selecting);
    assert_eq!(selected.is_selected, expected);
    assert_eq!(Cluster { is_selected: false, ..selected }, read(&Cluster::projection()), "all else is the same");
}

#[rstest]
#[case::earlier("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:04Z"), true)]
#[case::the_same_time("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05Z"), false)]
#[case::within_the_second("2026-01-02T03:04:05.5Z", Some("2026-01-02T03:04:05Z"), true)]
#[case::later("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:06Z"), false)]
#[case::another_zone("2026-01-02T05:04:05+02:00", Some("2026-01-02T03:04:05Z"), false)]
#[case::a_certificate_without_a_time("2026-01-02T03:04:05Z", None, true)]
#[case::a_date("2026-01-02", Some("2099-01-01T00:00:00Z"), true)]
#[case::without_a_zone("2026-01-02T03:04:05", Some("2099-01-01T00:00:00Z"), true)]
#[case::empty("", Some("2099-01-01T00:00:00Z"), true)]
#[case::no_time("tomorrow", Some("2099-01-01T00:00:00Z"), true)]
#[case::a_long_text("9".repeat(200_000).leak(), Some("2099-01-01T00:00:00Z"), true)]
fn an_annotation_of_a_cluster_excludes_certificates(
    #[case] text: &str,
    #[case] valid_from: Option<&str>,
    #[case] expected: bool,
) {
    let read = |annotations: Value| {
        let object = json!({"metadata": {"name": "stage", "annotations": annotations}});
        let read = Cluster::projection().read(&object.to_string(), &Interner::default()).unwrap();
        read.content.as_ref().unwrap().client_not_before
    };
    let not_before = read(json!({CLIENT_NOT_BEFORE: text})).unwrap();
    assert_eq!(not_before.excludes(valid_from.map(|time| time.parse().unwrap())), expected);
    assert_eq!(read(json!({"other": text})), None);
}

#[rstest]
#[case::field(json!({"spec": {"clusterName": "stage", "replicas": "x"}}), "stage")]
#[case::spec_is_no_object(json!({"metadata": {"labels": {LABEL: "stage"}}, "spec": "x"}), "stage")]
#[case::name_is_no_text(json!({"metadata": {"labels": {LABEL: "stage"}}, "spec": {"clusterName": 5}}), "stage")]
#[case::another_label_is_no_text(json!({"metadata": {"labels": {LABEL: "stage", "odd": 5}}}), "stage")]
#[case::label_is_no_text(json!({"metadata": {"labels": {LABEL: 5}}}), "")]
#[case::labels_are_no_map(json!({"metadata": {"labels": []}}), "")]
#[case::label_and_annotations_are_odd(json!({"metadata": {"labels": {LABEL: "stage"}, "annotations": 5}}), "stage")]
fn the_cluster_of_an_object_that_does_not_decode(#[case] mut object: Value, #[case] expected: &str) {
    let context = Context::new(DEFAULT_GROUP);
    object["metadata"]["name"] = "a".into();
    for kind in ScalableKind::ALL {
        let found = cluster_of(&ScalableResource::projection(kind, &context), &object, |object| &object.cluster_name);
        assert_eq!(found, (expected.to_owned(), false), "{kind}");
    }
}

/// An out-of-range number makes the object's JSON fail to parse, but the search still finds its Cluster.
#[test]
fn the_cluster_is_found_where_the_json_has_no_tree() {
    let projection = Machine::projection(&Context::new(DEFAULT_GROUP));
    let json = r#"{"metadata":{"name":"a"},"spec":{"clusterName":"stage","odd":1e999},"status":{"phase":5}}"#;
    let read = projection.read(json, &Interner::default()).unwrap();
    assert_eq!(read.content.unwrap_err().salvaged().unwrap(), "stage");
}

#[test]
fn the_names_of_clusters_are_shared() {
    let context = Context::new(DEFAULT_GROUP);
    let name = |phase: Value| {
        let object = json!({"metadata": {"name": "a"}, "spec": {"clusterName": "stage"}, "status": {"phase": phase}});
        Machine::projection(&context).read(&object.to_string(), &context.interner).unwrap().content
    };
    let (decoded, error) = (name(json!("Running")).unwrap(), name(json!(5)).unwrap_err());
    assert!(ArcStr::ptr_eq(&decoded.cluster_name, error.salvaged().unwrap()));
}
