//! The basics of serving.

use rstest::rstest;

use super::*;

#[tokio::test]
async fn requests_are_logged_with_their_answers() -> Result<()> {
    let world = World::start().await?;
    world.post("a").await?;
    world.get(&format!("{MACHINES}?limit=1")).await?;
    world.send(Method::GET, &format!("{MACHINES}/none"), None).await?;
    let requests = world.server.requests();
    let seen: Vec<(&str, Option<u16>)> = requests.all().iter().map(|request| (request.verb, request.status)).collect();
    assert_eq!(seen, [("create", Some(201)), ("list", Some(200)), ("get", Some(404))]);
    let first = requests.all().remove(0);
    assert_eq!((first.method.as_str(), first.path.as_str(), first.query.as_str()), ("POST", MACHINES, ""));
    assert_eq!(serde_json::from_slice::<Value>(&first.body)?["metadata"]["name"], "a");
    assert_eq!(requests.count(|request| request.query == "limit=1"), 1);
    requests.clear();
    assert!(requests.all().is_empty());
    world.get(MACHINES).await?;
    requests.wait_for(1, |request| request.status == Some(200)).await;
    Ok(())
}

#[tokio::test]
async fn a_long_list_comes_whole() -> Result<()> {
    let world = World::start().await?;
    for number in 0..2_000 {
        world.create(&format!("m-{number:05}"))?;
    }
    let (_, list) = world.get("/apis/cluster.x-k8s.io/v1beta1/machines").await?;
    let items = list["items"].as_array().context("no items")?;
    assert_eq!(items.len(), 2_000);
    assert!(items.iter().all(|item| item["apiVersion"] == "cluster.x-k8s.io/v1beta1" && item["kind"] == "Machine"));
    assert_eq!(list["kind"], "MachineList");
    Ok(())
}

#[tokio::test]
async fn a_server_comes_back_where_it_was() -> Result<()> {
    let world = World::start().await?;
    world.create("a")?;
    let address = world.server.address();
    world.server.shutdown().await;
    let settings = ServerSettings { address, ..ServerSettings::default() };
    let server = ApiServer::start_with(world.api.clone(), settings).await?;
    assert_eq!(server.address(), address);
    let again = World { api: world.api, server, client: world.client };
    assert_eq!(again.get(&format!("{MACHINES}/a")).await?.0, 200);
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_leads_to_the_server() -> Result<()> {
    let world = World::start().await?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubeconfig");
    world.server.write_kubeconfig(&path)?;
    let kubeconfig = kube::config::Kubeconfig::read_from(&path)?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    assert_eq!(config.cluster_url.to_string(), format!("{}/", world.server.url()));
    let version = kube::Client::try_from(config)?.apiserver_version().await?;
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    Ok(())
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() -> Result<()> {
    let world = World::start().await?;
    let large = json!({"metadata": {"name": "a"}, "spec": {"text": "x".repeat(LARGEST_BODY)}});
    let response = world.send(Method::POST, MACHINES, Some(&large)).await?;
    assert_eq!(response.status().as_u16(), 413);
    Ok(())
}

#[tokio::test]
async fn commands_find_the_schemas_of_kinds() -> Result<()> {
    let world = World::start().await?;
    let (_, index) = world.get("/openapi/v3").await?;
    let url = index["paths"]["apis/cluster.x-k8s.io/v1beta2"]["serverRelativeURL"].as_str().context("no path")?;
    let (status, schemas) = world.get(url).await?;
    let patch = &schemas["paths"]["/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/machines/{name}"]["patch"];
    assert_eq!((status, &patch["x-kubernetes-group-version-kind"]["kind"]), (200, &json!("Machine")));
    Ok(())
}

#[rstest]
#[case::protobuf(Method::POST, "/api/v1/namespaces", "application/vnd.kubernetes.protobuf", "`kubectl create -f`")]
#[case::apply(Method::PATCH, "/api/v1/namespaces/a", "application/apply-patch+yaml", "without `--server-side`")]
#[tokio::test]
async fn a_body_that_is_not_read_is_refused_with_the_command_that_sends_another(
    #[case] method: Method,
    #[case] path: &str,
    #[case] content_type: &str,
    #[case] remedy: &str,
) -> Result<()> {
    let world = World::start().await?;
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = world.client.send(request.body(Body::from(b"k8s\0".to_vec()))?).await?;
    ensure!(response.status() == 415, "{}", response.status());
    let status: Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
    ensure!(status["message"].as_str().is_some_and(|message| message.contains(remedy)), "{status}");
    Ok(())
}

#[rstest]
#[case::dependents_first(Method::DELETE, "/a?propagationPolicy=Foreground", 422)]
#[case::older_state(Method::GET, "?resourceVersion=1&resourceVersionMatch=Exact", 422)]
#[case::older_state_by_a_limit(Method::GET, "?resourceVersion=1&limit=1", 422)]
#[case::all_of_a_kind(Method::DELETE, "", 405)]
#[tokio::test]
async fn what_is_not_supported_is_refused(
    #[case] method: Method,
    #[case] rest: &str,
    #[case] status: u16,
) -> Result<()> {
    let world = World::start().await?;
    world.create("a")?;
    assert_eq!(world.send(method, &format!("{MACHINES}{rest}"), None).await?.status().as_u16(), status);
    assert_eq!(world.get(&format!("{MACHINES}/a")).await?.0, 200);
    Ok(())
}
