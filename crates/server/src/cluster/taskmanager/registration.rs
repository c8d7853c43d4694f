//! How a TaskManager gets its JobManager: it asks wherever one may be, and takes the one that
//! leads.

use tidegate_types::{ErrorChain, JobId, LeaderEpoch};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::ANSWER_PATIENCE;
use crate::cluster::client::reach;
use crate::cluster::refusal::Farewell;
use crate::cluster::search::{HEAD_START, NotFound, first_to_take};
use crate::cluster::secret::{AddressError, check_address};
use crate::cluster::settings::TaskManagerOptions;
use crate::cluster::wire::{
    ManagerHello, ManagerMessage, ManagerOrder, ManagerWelcome, VERSION, manager_message,
    manager_order,
};
use crate::data::BuildFingerprint;

/// What a TaskManager shows to JobManagers, and what it knows of them.
pub(super) struct Applicant {
    pub(super) options: TaskManagerOptions,
    pub(super) build: BuildFingerprint,
    /// Tells this process from others of its name.
    pub(super) instance: u64,
    /// Of the newest leadership that it has been registered with, and of which job.
    pub(super) leadership: Option<(JobId, LeaderEpoch)>,
}

/// The stream on which it is registered.
pub(super) struct Registration {
    pub(super) jobmanager: String,
    pub(super) welcome: ManagerWelcome,
    pub(super) orders: Streaming<ManagerOrder>,
    pub(super) says: UnboundedSender<ManagerMessage>,
}

impl Registration {
    /// A JobManager that is gone is told nothing, and finds out by itself.
    pub(super) fn say(&self, message: manager_message::Message) {
        let _ = self.says.send(ManagerMessage {
            message: Some(message),
        });
    }
}

impl Applicant {
    /// Registers with whoever leads.
    pub(super) async fn apply(&self) -> Result<Registration, NotFound> {
        let ask = |address| self.register(address);
        let found = first_to_take(&self.options.jobmanagers, ask, || sleep(HEAD_START)).await;
        found.map(|(_, registration)| registration)
    }

    async fn register(&self, address: &str) -> Result<Registration, Farewell> {
        self.check_address(address).await?;
        let mut client = reach(address, &self.options.cluster, ANSWER_PATIENCE).await?;
        let (says, said) = unbounded_channel();
        let _ = says.send(ManagerMessage {
            message: Some(manager_message::Message::Hello(self.hello())),
        });
        let answered = async {
            let answer = client.register(UnboundedReceiverStream::new(said)).await?;
            let mut orders = answer.into_inner();
            let first = orders.message().await?.and_then(|order| order.order);
            Ok::<_, tonic::Status>((first, orders))
        };
        let late = |_| Farewell::Gone("it doesn't answer".to_owned());
        let answered = timeout(ANSWER_PATIENCE, answered).await.map_err(late)?;
        let (first, orders) = answered.map_err(Farewell::from)?;
        let Some(manager_order::Order::Welcome(welcome)) = first else {
            return Err(Farewell::Gone("it does not welcome us".to_owned()));
        };
        self.check_leadership(&welcome)?;
        Ok(Registration {
            jobmanager: address.to_owned(),
            welcome,
            orders,
            says,
        })
    }

    fn hello(&self) -> ManagerHello {
        ManagerHello {
            version: VERSION,
            name: self.options.name.clone(),
            slots: self.options.slots,
            build: self.build.to_string(),
            instance: self.instance,
        }
    }

    /// Names are looked up on a thread of their own: that may take long, too.
    async fn check_address(&self, address: &str) -> Result<(), Farewell> {
        let allowed = self.options.cluster.leaves_the_machine();
        let address = address.to_owned();
        let checked = tokio::task::spawn_blocking(move || check_address(&address, allowed)).await;
        match checked {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error @ AddressError::Foreign(_))) => Err(Farewell::Refused(error.to_string())),
            Ok(Err(error)) => Err(Farewell::Gone(ErrorChain(&error).to_string())),
            Err(error) => Err(Farewell::Gone(error.to_string())),
        }
    }

    /// One that led before another is paused, or doesn't know yet: it must not be obeyed.
    fn check_leadership(&self, welcome: &ManagerWelcome) -> Result<(), Farewell> {
        let (_, epoch) = leadership(welcome);
        match since(self.leadership, leadership(welcome)) {
            Some(newest) => {
                tracing::warn!(%epoch, %newest, "a JobManager that has lost the lead is ignored");
                Err(Farewell::Gone(format!(
                    "it leads as `{epoch}`, and another has led as `{newest}` since"
                )))
            }
            None => Ok(()),
        }
    }
}

/// Of which job, and since which election.
pub(super) fn leadership(welcome: &ManagerWelcome) -> (JobId, LeaderEpoch) {
    let job = u128::from(welcome.job_high) << 64 | u128::from(welcome.job_low);
    (JobId(job), LeaderEpoch(welcome.epoch))
}

/// The leadership that has followed this one, as far as is known. Another job's epochs are its own.
fn since(
    known: Option<(JobId, LeaderEpoch)>,
    (job, epoch): (JobId, LeaderEpoch),
) -> Option<LeaderEpoch> {
    let (_, newest) = known.filter(|(known, _)| *known == job)?;
    (epoch < newest).then_some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A leader that was paused wakes up, and doesn't know yet that another one leads.
    #[test]
    fn a_former_leader_of_the_same_job_is_known_to_be_one() {
        let of = |job, epoch| (JobId(job), LeaderEpoch(epoch));
        assert_eq!(since(Some(of(1, 5)), of(1, 4)), Some(LeaderEpoch(5)));
        for (known, offered) in [
            (None, of(1, 4)),
            (Some(of(1, 5)), of(1, 5)),
            (Some(of(1, 5)), of(1, 6)),
            (Some(of(1, 5)), of(2, 1)),
        ] {
            assert_eq!(since(known, offered), None);
        }
    }
}
