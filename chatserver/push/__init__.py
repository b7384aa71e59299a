"""Push services: how a device that shows nothing is told. Browsers by Web Push, apps by FCM."""
