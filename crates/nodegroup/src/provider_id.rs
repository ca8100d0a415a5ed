//! Provider ids. Whole ids are compared first; the part after the last slash is a fallback for ids that differ in
//! form between Machine and Node.

/// Returns the part of a provider id after the last `/`. `None` if comparing it alone would be wrong: for Azure scale
/// sets, whose ids end in a number that every set has, and if nothing follows.
#[must_use]
pub fn tail(id: &str) -> Option<&str> {
    if is_azure_scale_set(id) {
        return None;
    }
    let tail = id.rsplit_once('/').map_or(id, |(_, tail)| tail);
    (!tail.is_empty()).then_some(tail)
}

/// The comparison ignores case, because Azure isn't consistent about it.
fn is_azure_scale_set(id: &str) -> bool {
    const SCALE_SETS: &str = "/virtualmachinescalesets/";
    let starts_with = |text: &str| id.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
    starts_with("azure:")
        && id.as_bytes().windows(SCALE_SETS.len()).any(|part| part.eq_ignore_ascii_case(SCALE_SETS.as_bytes()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::aws("aws:///eu-central-1a/i-0123456789", Some("i-0123456789"))]
    #[case::in_memory("in-memory://worker-1", Some("worker-1"))]
    #[case::no_slash("worker-1", Some("worker-1"))]
    #[case::azure_machine(
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/worker-1",
        Some("worker-1")
    )]
    #[case::azure_scale_set(
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/0",
        None
    )]
    #[case::azure_scale_set_in_lower_case(
        "azure:///subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/set/virtualmachines/0",
        None
    )]
    #[case::another_cloud_may_use_the_words("gce://project/virtualMachineScaleSets/worker-1", Some("worker-1"))]
    #[case::nothing_after_the_slash("aws:///", None)]
    #[case::empty("", None)]
    fn the_tail_of_a_provider_id_follows_its_last_slash_except_in_azure_scale_sets(
        #[case] id: &str,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(tail(id), expected);
    }
}
