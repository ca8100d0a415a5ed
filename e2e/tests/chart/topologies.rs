//! Tests of each topology: the chart rendered with the values of its example, in full for one of them.

use e2e::helm::{Helm, TOPOLOGIES, Values, objects, printed_values};
use serde_json::{Value, json};

use crate::helm;

/// The examples, each with its namespace.
pub(crate) const EXAMPLES: [(&str, &str); 4] = [
    ("self-managed", "kube-system"),
    ("management-cluster", "team-a"),
    ("workload-cluster", "kube-system"),
    ("two-kubeconfigs", "autoscaling"),
];

/// Renders the chart's objects, with placeholders for random values.
pub(crate) fn snapshot(helm: &Helm, values: &Values) -> String {
    let mut objects = helm.render(values).unwrap();
    for object in &mut objects {
        if object["kind"] == "Secret" {
            for value in object["data"].as_object_mut().unwrap().values_mut() {
                *value = json!("[made by chance]");
            }
            let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
            if let Some(digest) = annotations.get_mut("capi-autoscaler-provider.io/client-authority") {
                *digest = json!("[of what is made by chance]");
            }
        }
        // They are the same for all objects, and have a test of their own.
        object["metadata"].as_object_mut().unwrap().remove("labels");
    }
    let documents = objects.iter().map(|object| serde_yaml::to_string(object).unwrap());
    documents.collect::<Vec<_>>().join("---\n")
}

#[test]
fn one_topology_renders_as_it_is_recorded_and_helm_lint_finds_nothing_in_any() {
    let helm = helm();
    let (name, namespace) = EXAMPLES[0];
    insta::assert_snapshot!(name, snapshot(&helm, &Values::of_topology(name, namespace).unwrap()));
    for (name, namespace) in EXAMPLES {
        let values = Values::of_topology(name, namespace).unwrap();
        let said = helm.lint(&values).unwrap();
        assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{name}: {said}");
    }
    for file in ["provider-values.yaml", "second-fleet-values.yaml"] {
        let said = helm.lint(&Values::of_fleet(file).unwrap()).unwrap();
        assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{file}: {said}");
    }
}

#[test]
fn every_folder_of_topologies_is_one_that_is_tested() {
    let folders = std::fs::read_dir(TOPOLOGIES).unwrap().map(|entry| entry.unwrap());
    let mut folders: Vec<String> =
        folders.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().into_string().unwrap()).collect();
    let mut tested = EXAMPLES.map(|(name, _)| name.to_owned());
    folders.sort();
    tested.sort();
    assert_eq!(folders, tested);
}

#[test]
fn the_notes_print_the_values_of_the_official_chart_that_the_example_has() {
    let helm = helm();
    for (name, namespace) in EXAMPLES {
        let notes = helm.notes(&Values::of_topology(name, namespace).unwrap()).unwrap();
        let path = format!("{TOPOLOGIES}/{name}/cluster-autoscaler-values.yaml");
        let example = std::fs::read_to_string(path).unwrap();
        assert_eq!([printed_values(&notes).unwrap()], objects(&example).unwrap()[..], "{name}");
    }
}

#[test]
fn the_cloud_config_of_the_example_is_where_cluster_autoscaler_reads_it_and_names_files_that_are_mounted() {
    let helm = helm();
    for (name, namespace) in EXAMPLES {
        let rendered = helm.render(&Values::of_topology(name, namespace).unwrap()).unwrap();
        let find = |kind: &str, name: &Value| {
            let found = rendered.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == *name);
            found.unwrap_or_else(|| panic!("no {kind} {name}")).clone()
        };
        let path = format!("{TOPOLOGIES}/{name}/cluster-autoscaler-values.yaml");
        let values = objects(&std::fs::read_to_string(path).unwrap()).unwrap().remove(0);

        let volume = &values["extraVolumes"][0];
        let config = find("ConfigMap", &volume["configMap"]["name"]);
        let mount = &values["extraVolumeMounts"][0];
        assert_eq!(mount["name"], volume["name"], "{name}");
        let path = values["extraArgs"]["cloud-config"].as_str().unwrap();
        let file = path.strip_prefix(mount["mountPath"].as_str().unwrap()).unwrap().trim_start_matches('/');
        let cloud_config: Value = serde_yaml::from_str(config["data"][file].as_str().unwrap()).unwrap();

        assert_eq!(values.get("extraVolumeSecrets"), None, "{name}: Helm would merge it with that of earlier values");
        let certificates = &values["extraVolumes"][1];
        let mounted = find("Secret", &certificates["secret"]["secretName"]);
        let mount = &values["extraVolumeMounts"][1];
        assert_eq!(mount["name"], certificates["name"], "{name}");
        for (key, item) in [("cert", "tls.crt"), ("key", "tls.key"), ("cacert", "ca.crt")] {
            let expected = format!("{}/{item}", mount["mountPath"].as_str().unwrap());
            assert_eq!(cloud_config[key], json!(expected), "{name}");
            assert!(mounted["data"][item].is_string(), "{name}: {item}");
        }
        assert_eq!(cloud_config["grpc_timeout"], "30s", "{name}");
        let (host, port) = cloud_config["address"].as_str().unwrap().rsplit_once(':').unwrap();
        let service = find("Service", &json!(host.split('.').next().unwrap()));
        assert_eq!(host, format!("{}.{namespace}.svc", service["metadata"]["name"].as_str().unwrap()));
        assert_eq!(json!(port.parse::<u16>().unwrap()), service["spec"]["ports"][0]["port"], "{name}");
    }
}
