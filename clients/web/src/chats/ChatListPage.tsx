export default function ChatListPage() {
  return null;
}
