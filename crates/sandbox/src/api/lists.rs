//! The lists that are merged by a key, by strategic merge patches and in `managedFields`. All other lists are one value
//! each, and so are those of custom kinds.

/// Returns the keys of the list at `path`, the first of which identifies an item in a patch; no keys for a set of plain
/// values, and `None` for a list that is one value. Items of lists are written `[]`.
pub(crate) fn merge_keys(is_core: bool, path: &str) -> Option<&'static [&'static str]> {
    match path {
        ".metadata.ownerReferences" => return Some(&["uid"]),
        ".metadata.finalizers" => return Some(&[]),
        _ if !is_core => return None,
        _ => {}
    }
    Some(match path.rsplit('.').next().unwrap_or_default() {
        "addresses" | "conditions" => &["type"],
        "containers"
        | "env"
        | "ephemeralContainers"
        | "imagePullSecrets"
        | "initContainers"
        | "secrets"
        | "volumes" => &["name"],
        "hostAliases" | "podIPs" => &["ip"],
        "podCIDRs" => &[],
        "ports" if path.ends_with("[].ports") => &["containerPort", "protocol"],
        "ports" => &["port", "protocol"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        "volumeDevices" => &["devicePath"],
        "volumeMounts" => &["mountPath"],
        _ => return None,
    })
}
