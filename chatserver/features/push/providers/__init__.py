"""Push providers: Web Push for browsers, FCM and APNs for applications."""
