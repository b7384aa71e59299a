"""Push services: browsers are told by Web Push, applications by FCM or APNs."""
