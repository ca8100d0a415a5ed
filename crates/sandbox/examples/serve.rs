//! Serves the objects of manifest files until it is interrupted: `serve KUBECONFIG [MANIFEST…]` writes the kubeconfig
//! to the first file.

use sandbox::{api::Api, clock::Clock, http::ApiServer};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = arguments.next().ok_or_else(|| anyhow::anyhow!("name the kubeconfig to write"))?;
    let api = Api::new(Clock::real());
    for manifest in arguments {
        let count = api.load(&std::fs::read_to_string(&manifest)?)?;
        println!("{count} objects from {manifest}");
    }
    let server = ApiServer::start(api).await?;
    server.write_kubeconfig(&kubeconfig)?;
    println!("serving on {}", server.url());
    tokio::signal::ctrl_c().await?;
    server.shutdown().await;
    Ok(())
}
